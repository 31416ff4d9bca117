// Ranks as threads, and a stage's forward and backward passes on them.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "treering/parallel/comm.hpp"
#include "treering/parallel/stage.hpp"

#include "matrices.hpp"

namespace partest {

using tr::par::Comm;
using tr::par::Layout;
using tr::par::MicroBatch;
using tr::par::Model;
using tr::par::ParameterSpec;
using tr::par::ParameterStore;
using tr::par::Spread;
using tr::par::Stage;
using tr::par::StageOptions;

// body(comm) on `size` ranks, sums in rank order.
inline void on_ranks(int size, const std::function<void(Comm&)>& body) {
  auto comms = must(tr::par::make_threads_comms(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      must(comms[rank]->set_rank_order(true));
      body(*comms[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// This rank's part of a whole matrix.
inline Matrix part_of(const Matrix& whole, Layout layout, int rank, int size) {
  const std::int64_t rows = layout == Layout::kRows ? whole.rows / size : whole.rows;
  const std::int64_t cols = layout == Layout::kColumns ? whole.cols / size : whole.cols;
  return whole.part(layout == Layout::kRows ? rank * rows : 0,
                    layout == Layout::kColumns ? rank * cols : 0, rows, cols);
}
// The whole of all ranks' parts.
inline Matrix joined(const std::vector<Matrix>& parts, Layout layout) {
  const auto size = static_cast<std::int64_t>(parts.size());
  const Matrix& first = parts.front();
  if (layout == Layout::kReplicated) return first;
  const bool by_rows = layout == Layout::kRows;
  Matrix out(first.rows * (by_rows ? size : 1), first.cols * (by_rows ? 1 : size));
  for (std::int64_t q = 0; q < size; ++q) {
    for (std::int64_t i = 0; i < first.rows; ++i) {
      for (std::int64_t j = 0; j < first.cols; ++j) {
        out(i + (by_rows ? q * first.rows : 0), j + (by_rows ? 0 : q * first.cols)) =
            parts[q](i, j);
      }
    }
  }
  return out;
}

// Whole parameters, by number.
inline std::vector<Matrix> initial(const Model& model, std::uint64_t seed) {
  std::vector<Matrix> all;
  for (const ParameterSpec& one : model.parameters()) {
    Matrix whole(one.rows, one.cols);
    initialize(one, model.layers()[one.layer], seed, 0, 1, whole.x.data());
    // Biases, and norms that do something.
    if (one.kind != ParameterSpec::Kind::kWeight) {
      const Matrix noise = random_matrix(one.rows, one.cols, 900 + one.number);
      for (std::size_t i = 0; i < whole.x.size(); ++i) whole.x[i] += noise.x[i] / 4;
    }
    all.push_back(whole);
  }
  return all;
}

// Parameters of one replica. Outside of acquire and release they are NaN, so that nobody can use
// them there unseen.
class TestStore : public ParameterStore {
 public:
  TestStore(Compute& compute, const Model& model, const std::vector<Matrix>& whole, DType type,
            int rank, int size)
      : compute_(compute), specs_(model.parameters()) {
    for (const ParameterSpec& one : specs_) {
      values_.push_back(
          tensor_of(compute, part_of(whole[one.number], one.layout, rank, size), type));
      const View like = values_.back().view();
      used_.push_back(empty_tensor(compute, like.rows, like.cols, type));
      must(compute.fill(used_.back().view(), std::nan("")));
      gradients_.push_back(
          empty_tensor(compute, like.rows, like.cols, tr::par::accumulator_of(type)));
      must(compute.fill(gradients_.back().view(), 0.0));
    }
  }

  tr::Status initialize(std::uint64_t) override { return {}; }
  const std::vector<tr::par::BucketInfo>& buckets() const override { return buckets_; }
  tr::par::GradientHook* hook() const override { return nullptr; }
  tr::Status prefetch(int) override { return {}; }
  tr::Status acquire(int layer) override {
    if (acquired_[layer]++ > 0) return {};
    for_layer(layer, [&](int i) { must(compute_.copy(values_[i].view(), used_[i].view())); });
    return {};
  }
  void release(int layer) override {
    if (--acquired_[layer] > 0) return;
    for_layer(layer, [&](int i) { must(compute_.fill(used_[i].view(), std::nan(""))); });
  }
  View parameter(int number) override { return used_[number].view(); }
  tr::Result<View> gradient(int number) override { return gradients_[number].view(); }
  tr::Status ready(int layer) override {
    ready_.push_back(layer);
    return {};
  }
  tr::Status ready_empty() override { return {}; }
  tr::Status finish() override { return {}; }
  tr::Result<double> gradient_norm(Comm&) override { return 0.0; }
  tr::Result<std::string> find_not_finite() override { return std::string(); }
  tr::Status step(double) override { return {}; }
  tr::Status drop_gradients() override { return {}; }
  void set_learning_rate(double) override {}
  std::int64_t steps() const override { return 0; }
  std::vector<Piece> pieces() override { return {}; }
  tr::Status set_steps(std::int64_t) override { return {}; }
  tr::Status publish_parameters() override { return {}; }
  tr::Result<std::uint64_t> hash() override { return std::uint64_t{0}; }

  const std::vector<int>& ready_layers() const { return ready_; }
  // All layers released as often as acquired?
  bool is_balanced() const {
    return std::all_of(acquired_.begin(), acquired_.end(),
                       [](const auto& one) { return one.second == 0; });
  }

 private:
  template <class Body>
  void for_layer(int layer, const Body& body) {
    for (const ParameterSpec& one : specs_) {
      if (one.layer == layer) body(one.number);
    }
  }

  Compute& compute_;
  std::vector<ParameterSpec> specs_;
  std::vector<Tensor> values_, used_, gradients_;
  std::vector<tr::par::BucketInfo> buckets_;
  std::map<int, int> acquired_;
  std::vector<int> ready_;
};

// What a team computes, in which way.
struct Plan {
  Model model{tr::par::Loss::kMeanSquare};
  int ranks = 1;
  int first = 0;  // layer of the stage, which ends with the model
  std::int64_t rows = 16;
  int micro_batches = 1;
  bool split_weights = false;
  StageOptions options = {};
  const char* gemm = "ref";
};

struct Outcome {
  Matrix y, dx;                   // dx: empty if the stage is the first
  std::vector<Matrix> gradients;  // of whole parameters
  double loss = 0.0;
  tr::par::Traffic traffic;  // of the last rank
  std::int64_t peak_activations = 0;
  std::vector<int> ready;
};

inline Matrix inputs_of(const Plan& plan) {
  return random_matrix(plan.rows, plan.model.layers()[plan.first].in, 500);
}

// One rank's share of an outcome.
struct RankOutcome {
  std::vector<Matrix> y, dx;  // by micro-batch
  std::vector<Matrix> gradients;
  double loss = 0.0;
};

inline MicroBatch batch_of(const Plan& plan, int number) {
  const std::int64_t rows = plan.rows / plan.micro_batches;
  return {.number = number, .first_row = 100 + number * rows, .rows = rows, .step = 7};
}

inline RankOutcome run_rank(const Plan& plan, const std::vector<Matrix>& parameters, Comm& tp,
                            Outcome* report) {
  const auto compute = must(tr::par::make_host_compute(plan.gemm));
  const DType type = plan.options.type;
  TestStore store(*compute, plan.model, parameters, type, tp.rank(), tp.size());
  const auto stage =
      must(Stage::create(plan.model, plan.first, static_cast<int>(plan.model.layers().size()), tp,
                         *compute, store, plan.options));
  RankOutcome out;
  const Matrix x = inputs_of(plan);
  const double outputs =
      static_cast<double>(std::max<std::int64_t>(plan.rows, 1) * stage->output_width());
  std::deque<Spread> gradients;
  for (int i = 0; i < plan.micro_batches; ++i) {
    const MicroBatch batch = batch_of(plan, i);
    const Matrix mine = part_of(x.part(i * batch.rows, 0, batch.rows, x.cols), stage->boundary(),
                                tp.rank(), tp.size());
    const Spread y =
        must(stage->forward(batch, {tensor_of(*compute, mine, type), stage->boundary()}));
    EXPECT_EQ(y.layout, Layout::kReplicated);
    Tensor dy = empty_tensor(*compute, y.tensor.view().rows, y.tensor.view().cols, type);
    out.loss +=
        must(compute->mean_square(y.tensor.view(), outputs, 1.0, dy.view())).loss_sum / outputs;
    out.y.push_back(read(*compute, y.tensor.view()));
    gradients.push_back({std::move(dy), Layout::kReplicated});
  }
  EXPECT_EQ(stage->in_flight(), plan.micro_batches);
  for (int i = 0; i < plan.micro_batches; ++i) {
    const bool is_last = i + 1 == plan.micro_batches;
    const Spread dx =
        must(stage->backward(i, std::move(gradients[i]), is_last, plan.split_weights));
    EXPECT_EQ(dx.tensor.is_empty(), plan.first == 0);
    if (!dx.tensor.is_empty()) out.dx.push_back(read(*compute, dx.tensor.view()));
  }
  for (int i = 0; plan.split_weights && i < plan.micro_batches; ++i) {
    must(stage->weights(i, i + 1 == plan.micro_batches));
  }
  EXPECT_EQ(stage->in_flight(), 0);
  EXPECT_TRUE(store.is_balanced());
  for (const ParameterSpec& one : plan.model.parameters()) {
    out.gradients.push_back(read(*compute, must(store.gradient(one.number))));
  }
  if (report != nullptr) {
    report->traffic = tp.traffic();
    report->ready = store.ready_layers();
    report->peak_activations = compute->memory().peak_bytes();
  }
  return out;
}

// Joins micro-batches, one after another.
inline Matrix stacked(const std::vector<Matrix>& parts) {
  return parts.empty() ? Matrix() : joined(parts, Layout::kRows);
}

inline Outcome run_team(const Plan& plan) {
  const std::vector<Matrix> parameters = initial(plan.model, 11);
  std::vector<RankOutcome> ranks(plan.ranks);
  Outcome out;
  on_ranks(plan.ranks, [&](Comm& tp) {
    ranks[tp.rank()] = run_rank(plan, parameters, tp, tp.rank() + 1 == tp.size() ? &out : nullptr);
  });
  out.loss = ranks[0].loss;
  out.y = stacked(ranks[0].y);
  for (const RankOutcome& one : ranks) {
    expect_equal(stacked(one.y), out.y);
    EXPECT_EQ(one.loss, out.loss);
  }
  const Layout boundary = plan.model.is_sequence_parallel() ? Layout::kRows : Layout::kReplicated;
  std::vector<Matrix> dx;
  for (std::size_t i = 0; i < ranks[0].dx.size(); ++i) {
    std::vector<Matrix> parts;
    for (const RankOutcome& one : ranks) parts.push_back(one.dx[i]);
    dx.push_back(joined(parts, boundary));
  }
  out.dx = stacked(dx);
  for (const ParameterSpec& one : plan.model.parameters()) {
    std::vector<Matrix> parts;
    for (const RankOutcome& rank : ranks) parts.push_back(rank.gradients[one.number]);
    Matrix whole = joined(parts, one.layout);
    for (std::size_t q = 1; one.layout == Layout::kReplicated && q < parts.size(); ++q) {
      if (!one.gradient_is_partial) {
        expect_equal(parts[q], whole);
        continue;
      }
      for (std::size_t i = 0; i < whole.x.size(); ++i) {
        whole.x[i] = plan.options.type == DType::kFloat64
                         ? whole.x[i] + parts[q].x[i]
                         : static_cast<float>(whole.x[i]) + static_cast<float>(parts[q].x[i]);
      }
    }
    out.gradients.push_back(std::move(whole));
  }
  return out;
}

}  // namespace partest
