// Whole trainings on ranks that are threads, on data made of numbers by place.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "treering/parallel/rng.hpp"
#include "treering/parallel/trainer.hpp"

#include "ranks.hpp"

namespace partest {

using tr::par::Compute;
using tr::par::DType;
using tr::par::MeshShape;
using tr::par::Model;
using tr::par::Split;
using tr::par::StepReport;
using tr::par::Trainer;
using tr::par::TrainerOptions;

// Points around `classes` centres: learnable, endless, the same for everybody.
class Blobs final : public tr::par::Data {
 public:
  Blobs(std::int64_t rows, std::int64_t features, int classes)
      : rows_(rows), features_(features), classes_(classes) {}
  std::int64_t rows() const override { return rows_; }
  std::int64_t features() const override { return features_; }
  void read(std::span<const std::int64_t> rows, std::span<float> features,
            std::span<std::int32_t> labels) const override {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<std::uint64_t>(rows[i]);
      const std::uint64_t label = tr::par::random_bits(3, 1, row) % static_cast<unsigned>(classes_);
      for (std::size_t j = 0; !features.empty() && j < static_cast<std::size_t>(features_); ++j) {
        const double centre = tr::par::random_symmetric(3, 100 + label, j);
        const double noise = tr::par::random_symmetric(3, 1000 + row, j);
        features[i * static_cast<std::size_t>(features_) + j] =
            static_cast<float>(centre + 0.5 * noise);
      }
      if (!labels.empty()) labels[i] = static_cast<std::int32_t>(label);
    }
  }

 private:
  std::int64_t rows_, features_;
  int classes_;
};

// What a training left on rank 0.
struct Curve {
  std::vector<double> loss, norm, scale;  // by step
  std::uint64_t hash = 0;
};

struct Training {
  Model model{tr::par::Loss::kCrossEntropy};
  TrainerOptions options;
  std::string gemm = "ref";
  bool is_on_gpu = false;
  std::int64_t rows = 256, features = 16, batch = 32;
  int classes = 8, steps = 8;

  Training() { options.optimizer.adamw.lr = 5e-3; }
};

inline std::vector<std::int64_t> batch_of(const Training& t, int step) {
  const std::vector<std::int64_t> order = tr::par::shuffled_rows(t.rows, t.options.seed, 0);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < t.batch; ++i) {
    rows.push_back(order[static_cast<std::size_t>((step * t.batch + i) % t.rows)]);
  }
  return rows;
}

// Steps [from, to) on a trainer that exists.
inline void train_steps(const Training& t, Trainer& trainer, int from, int to, Curve* curve) {
  const Blobs data(t.rows, t.features, t.classes);
  for (int step = from; step < to; ++step) {
    const tr::Result<StepReport> report = trainer.step(data, batch_of(t, step));
    ASSERT_TRUE(report) << report.error().message;
    if (curve == nullptr) continue;
    curve->loss.push_back(report.value().score.loss_sum / static_cast<double>(t.batch));
    curve->norm.push_back(report.value().gradient_norm);
    curve->scale.push_back(report.value().loss_scale);
  }
}

// body(trainer, rank) on every rank of the mesh.
inline void on_mesh(const Training& t, const std::function<void(Trainer&, int)>& body) {
  on_ranks(t.options.mesh.size(), [&](std::unique_ptr<tr::par::Comm> world) {
    const int rank = world->rank();
    auto compute =
        t.is_on_gpu ? tr::par::make_cuda_compute(t.gemm, 0) : tr::par::make_host_compute(t.gemm);
    ASSERT_TRUE(compute) << compute.error().message;
    auto trainer = Trainer::create(std::move(world), *compute.value(), t.model, t.options);
    ASSERT_TRUE(trainer) << "rank " << rank << ": " << trainer.error().message;
    body(*trainer.value(), rank);
  });
}

inline Curve train(const Training& t) {
  Curve curve;
  on_mesh(t, [&](Trainer& trainer, int rank) {
    train_steps(t, trainer, 0, t.steps, rank == 0 ? &curve : nullptr);
    const auto hash = trainer.check_replicas();
    ASSERT_TRUE(hash) << hash.error().message;
    if (rank == 0) curve.hash = hash.value();
  });
  return curve;
}

inline std::string name_of(const MeshShape& m) {
  return "dp" + std::to_string(m.dp) + " pp" + std::to_string(m.pp) + " tp" + std::to_string(m.tp);
}

// Every (dp, pp, tp) whose product is at most `most`.
inline std::vector<MeshShape> all_shapes(int most) {
  std::vector<MeshShape> shapes;
  for (int dp = 1; dp <= most; ++dp) {
    for (int pp = 1; dp * pp <= most; ++pp) {
      for (int tp = 1; dp * pp * tp <= most; ++tp) shapes.push_back({dp, pp, tp});
    }
  }
  return shapes;
}

// Relative to the first's.
inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = a.size() == b.size() ? 0.0 : 1e9;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(a[i] - b[i]) / std::abs(a[i]);
    if (std::isnan(difference)) return HUGE_VAL;  // std::max would forget it
    worst = std::max(worst, difference);
  }
  return worst;
}

// 16-32-32-32-8, every width shared by 2 and 4 ranks; the last layer too.
inline Model megatron_model() {
  Model model(tr::par::Loss::kCrossEntropy);
  model.linear(16, 32, Split::kColumn).relu().linear(32, 32, Split::kRow).relu();
  model.linear(32, 32, Split::kColumn).relu().linear(32, 8, Split::kRow);
  return model;
}
inline Model gather_model() {
  Model model(tr::par::Loss::kCrossEntropy);
  model.linear(16, 32, Split::kColumn).relu().linear(32, 32, Split::kColumn).relu();
  model.linear(32, 32, Split::kColumn).relu().linear(32, 8, Split::kColumn);
  return model;
}

}  // namespace partest
