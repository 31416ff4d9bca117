// What must not change a bit, or hardly one, in whole trainings on 2, 4 and 8 ranks: replicas and
// stages against the serial run (V4, V6), recomputation (V12), fp64 (V15), and what the declarative
// form promises of every combination.
#include <map>
#include <mutex>

#include "trainers.hpp"

namespace partest {
namespace {

using tr::par::Recompute;

// 16-32-32-32-32-32-32-32-8: eight layers, with norms and dropout.
Model rich_model() {
  Model model(tr::par::Loss::kCrossEntropy);
  model.linear(16, 32, Split::kColumn).gelu().linear(32, 32, Split::kRow).relu();
  model.linear(32, 32, Split::kColumn).norm().relu().dropout(0.2).linear(32, 32, Split::kRow);
  model.linear(32, 32, Split::kColumn).norm().gelu().linear(32, 32, Split::kRow).relu();
  model.linear(32, 32, Split::kColumn).gelu().linear(32, 8, Split::kRow);
  return model;
}

Training of(const MeshShape& mesh) {
  Training t;
  t.model = rich_model();
  t.options.mesh = mesh;
  t.options.rank_order = true;
  t.options.micro_batch = 4;
  t.steps = 5;
  return t;
}

// Of 2, 4 and 8 ranks.
std::vector<MeshShape> shapes() {
  std::vector<MeshShape> some;
  for (const MeshShape& mesh : all_shapes(8)) {
    const bool is_power = mesh.size() == 2 || mesh.size() == 4 || mesh.size() == 8;
    if (is_power) some.push_back(mesh);
  }
  return some;
}

void expect_same(const Curve& actual, const Curve& expected) {
  EXPECT_EQ(actual.loss, expected.loss);
  EXPECT_EQ(actual.norm, expected.norm);
  EXPECT_EQ(actual.hash, expected.hash);
}

// Losses of all steps and the parameters after them, by number. Without tp and ZeRO.
struct Trained {
  std::vector<double> loss;
  std::map<int, std::vector<float>> parameters;
  bool operator==(const Trained&) const = default;
};
Trained trained(const Training& t) {
  Trained all;
  std::mutex mutex;
  on_mesh(t, [&](Trainer& trainer, int rank) {
    Curve mine;
    train_steps(t, trainer, 0, t.steps, &mine);
    const std::lock_guard lock(mutex);
    if (rank == 0) all.loss = mine.loss;
    for (const auto& piece : trainer.parameters().pieces()) {
      const auto* x = static_cast<const float*>(piece.master.data);
      const std::vector<float> values(x, x + piece.master.elements());
      const auto [at, is_new] = all.parameters.emplace(piece.number, values);
      EXPECT_TRUE(is_new || at->second == values) << "replicas differ";
    }
  });
  return all;
}

// A replica has one micro-batch, so that the serial run's sum has the same brackets; or there is
// one replica.
TEST(V4V6Training, ReplicasAndStagesHaveTheSerialRunsBits) {
  for (const MeshShape& mesh : shapes()) {
    if (mesh.tp > 1) continue;
    SCOPED_TRACE(name_of(mesh));
    Training t = of(mesh), serial = of({1, 1, 1});
    if (mesh.dp > 1) t.options.micro_batch = serial.options.micro_batch = t.batch / mesh.dp;
    const Trained expected = trained(serial);
    EXPECT_EQ(expected.parameters.size(), t.model.parameters().size());
    for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) {
      if (mesh.pp == 1 && std::string(schedule) != "1f1b") continue;
      t.options.schedule = schedule;
      EXPECT_EQ(trained(t), expected) << schedule;
    }
  }
}

TEST(V9Training, EveryZeroStageHasTheBitsOfDataParallelism) {
  for (const MeshShape& mesh : shapes()) {
    if (mesh.dp == 1) continue;
    Training t = of(mesh);
    t.options.bucket_bytes = t.options.first_bucket_bytes = 1;  // as ZeRO-3 has them
    t.options.clip_norm = 1.0;
    const Curve expected = train(t);
    for (t.options.zero = 1; t.options.zero <= 3; ++t.options.zero) {
      SCOPED_TRACE(name_of(mesh) + " zero " + std::to_string(t.options.zero));
      expect_same(train(t), expected);
    }
  }
}

TEST(V12Training, RecomputationAndOverlapChangeNoBit) {
  for (const MeshShape& mesh : shapes()) {
    const Curve expected = train(of(mesh));
    for (const Recompute recompute : {Recompute::kActivation, Recompute::kFull}) {
      SCOPED_TRACE(name_of(mesh) + (recompute == Recompute::kFull ? " full" : " activation"));
      Training t = of(mesh);
      t.options.recompute = recompute;
      expect_same(train(t), expected);
    }
    SCOPED_TRACE(name_of(mesh) + " without overlap");
    Training t = of(mesh);
    t.options.overlap = false;
    expect_same(train(t), expected);
  }
}

TEST(V15Training, Fp64IsTheSerialRunToTwelveDigits) {
  Training serial = of({1, 1, 1});
  serial.options.type = DType::kFloat64;
  const Curve expected = train(serial);
  EXPECT_LT(expected.loss.back(), expected.loss.front());
  for (const char* gemm : {"ref", "openblas"}) {
    if (gemm[0] == 'o' && !tr::par::have_openblas()) continue;
    for (const MeshShape& mesh : shapes()) {
      for (const int zero : {0, 3}) {
        if (zero > 0 && mesh.dp == 1) continue;
        Training t = of(mesh);
        t.gemm = gemm;
        t.options.type = DType::kFloat64;
        t.options.zero = zero;
        t.options.rank_order = false;
        const Curve curve = train(t);
        EXPECT_LE(largest_difference(expected.loss, curve.loss), 1e-12) << name_of(mesh) << gemm;
        EXPECT_LE(largest_difference(expected.norm, curve.norm), 1e-12) << name_of(mesh) << gemm;
      }
    }
  }
}

}  // namespace
}  // namespace partest
