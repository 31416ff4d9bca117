// V11: every (dp, pp, tp) of up to 8 ranks trains what one rank trains. V2: twice the same run has
// the same bits. And of the plan's other claims what needs a whole trainer: mixed precision with
// its loss scale, clipping over every layout, compressed gradients, uneven batches (V19).
#include <chrono>
#include <thread>

#include "trainers.hpp"

namespace partest {
namespace {

constexpr double kTolerance = 1e-6;  // of losses over some steps (V5): sums fold in other orders

Training of(const MeshShape& mesh, Model model, int micro_batches = 4) {
  Training t;
  t.model = std::move(model);
  t.options.mesh = mesh;
  t.options.rank_order = true;
  t.options.micro_batch = t.batch / mesh.dp / micro_batches;
  return t;
}

// Of powers of two, for megatron_model's 4 layers and widths.
std::vector<MeshShape> shapes_of(int most) {
  std::vector<MeshShape> shapes;
  for (int dp = 1; dp <= most; dp *= 2) {
    for (int pp = 1; dp * pp <= most; pp *= 2) {
      for (int tp = 1; dp * pp * tp <= most; tp *= 2) {
        if (pp <= 4) shapes.push_back({dp, pp, tp});
      }
    }
  }
  return shapes;
}

// Eight layers, of a width that tp divides. The last one is 8 wide: what does not divide that is
// row-parallel or replicated.
Model eight_layers(int tp, bool gather) {
  const std::int64_t width = tp == 5 || tp == 7 ? 35 : 24;
  Model model(tr::par::Loss::kCrossEntropy);
  for (int l = 0; l < 7; ++l) {
    const bool is_row = !gather && l % 2 == 1;
    model.linear(l == 0 ? 16 : width, width, is_row ? Split::kRow : Split::kColumn).gelu();
  }
  return model.linear(width, 8, gather ? Split::kReplicate : Split::kRow);
}

class V11 : public ::testing::TestWithParam<MeshShape> {};

TEST_P(V11, EveryLayoutTrainsWhatOneRankTrains) {
  for (const bool gather : {false, true}) {
    const Model model = eight_layers(GetParam().tp, gather);
    Training alone = of({1, 1, 1}, model), t = of(GetParam(), model);
    alone.steps = t.steps = 14;
    const Curve serial = train(alone), parallel = train(t);
    EXPECT_LE(largest_difference(serial.loss, parallel.loss), kTolerance) << name_of(GetParam());
    EXPECT_LE(largest_difference(serial.norm, parallel.norm), 10 * kTolerance);
    EXPECT_LT(serial.loss.back(), 0.9 * serial.loss.front()) << "it learns";
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, V11, ::testing::ValuesIn(all_shapes(8)), [](const auto& given) {
  const MeshShape& m = given.param;
  return "dp" + std::to_string(m.dp) + "pp" + std::to_string(m.pp) + "tp" + std::to_string(m.tp);
});

TEST(V11Forms, UnevenStagesInterleavedAndZeroBubble) {
  Model model(tr::par::Loss::kCrossEntropy);
  model.linear(16, 24).relu();
  for (int i = 0; i < 8; ++i) model.linear(24, 24).gelu();
  model.linear(24, 8);
  const Curve serial = train(of({1, 1, 1}, model));
  Training uneven = of({1, 3, 1}, model);
  uneven.options.stage_layers = {3, 3, 4};
  Training interleaved = of({1, 2, 1}, model);
  interleaved.options.schedule = "interleaved";
  interleaved.options.stages_per_rank = 2;
  Training zero_bubble = of({2, 2, 1}, model, 2);
  zero_bubble.options.schedule = "zb-h1";
  for (const Training& t : {uneven, interleaved, zero_bubble}) {
    EXPECT_LE(largest_difference(serial.loss, train(t).loss), kTolerance) << t.options.schedule;
  }
}

TEST(V11Forms, AllOfItTogether) {
  Model model = megatron_model();
  model.sequence_parallel();
  const Curve serial = train(of({1, 1, 1}, megatron_model()));
  for (int zero = 0; zero <= 3; ++zero) {
    Training t = of({2, 2, 2}, model, 2);
    t.options.zero = zero;
    t.options.recompute = zero % 2 == 0 ? tr::par::Recompute::kFull : tr::par::Recompute::kNone;
    t.options.tp_chunks = 2;
    EXPECT_LE(largest_difference(serial.loss, train(t).loss), kTolerance) << "zero " << zero;
  }
}

TEST(V2, ARunIsTheSameTwiceWhateverTheTiming) {
  for (const MeshShape& mesh : shapes_of(8)) {
    if (mesh.size() == 1) continue;
    Training t = of(mesh, megatron_model(), 2);
    t.options.rank_order = false;
    const Curve first = train(t);
    Curve second;
    on_mesh(t, [&](Trainer& trainer, int rank) {
      for (int step = 0; step < t.steps; ++step) {
        const auto us =
            tr::par::random_bits(9, static_cast<unsigned>(rank), static_cast<unsigned>(step)) %
            2000;
        std::this_thread::sleep_for(std::chrono::microseconds(us));
        train_steps(t, trainer, step, step + 1, rank == 0 ? &second : nullptr);
      }
      const auto hash = trainer.check_replicas();
      ASSERT_TRUE(hash);
      if (rank == 0) second.hash = hash.value();
    });
    EXPECT_EQ(first.loss, second.loss) << name_of(mesh);
    EXPECT_EQ(first.hash, second.hash) << name_of(mesh);
  }
}

TEST(V19, BatchesThatReplicasCannotShareEvenly) {
  Training serial = of({1, 1, 1}, megatron_model(), 1);
  serial.batch = 29;
  const Curve expected = train(serial);
  for (const MeshShape& mesh : {MeshShape{2, 1, 1}, MeshShape{3, 1, 1}, MeshShape{4, 1, 1},
                                MeshShape{4, 2, 1}, MeshShape{8, 1, 1}, MeshShape{2, 2, 2}}) {
    Training t = of(mesh, megatron_model(), 1);
    t.batch = 29;
    t.options.micro_batch = 4;
    EXPECT_LE(largest_difference(expected.loss, train(t).loss), kTolerance) << name_of(mesh);
  }
  // Fewer rows than replicas: some have none at all.
  Training tiny = of({4, 1, 1}, megatron_model(), 1), alone = of({1, 1, 1}, megatron_model(), 1);
  tiny.batch = alone.batch = 3;
  tiny.options.micro_batch = alone.options.micro_batch = 0;
  EXPECT_LE(largest_difference(train(alone).loss, train(tiny).loss), kTolerance);
}

TEST(V19, WhatDoesNotFitIsRefusedWithItsNumbers) {
  const auto refusal = [](const Training& t) {
    std::string text;
    on_ranks(t.options.mesh.size(), [&](std::unique_ptr<tr::par::Comm> world) {
      const int rank = world->rank();
      auto compute = tr::par::make_host_compute("ref");
      auto made = Trainer::create(std::move(world), *compute.value(), t.model, t.options);
      ASSERT_FALSE(made);
      if (rank == 0) text = made.error().message;
    });
    return text;
  };
  Training stages = of({1, 8, 1}, megatron_model());
  EXPECT_NE(refusal(stages).find("4 layers cannot be 8"), std::string::npos) << refusal(stages);
  Training widths = of({1, 1, 3}, megatron_model());
  EXPECT_NE(refusal(widths).find("32"), std::string::npos) << refusal(widths);
  Training list = of({1, 2, 1}, megatron_model());
  list.options.stage_layers = {1, 2};
  EXPECT_NE(refusal(list).find("whose sum is 4"), std::string::npos) << refusal(list);
  Training zero = of({1, 1, 1}, megatron_model());
  zero.options.zero = 4;
  EXPECT_NE(refusal(zero).find("zero must be"), std::string::npos) << refusal(zero);
}

TEST(V20, OptionsThatDifferOnARankAreNamedOnAll) {
  using Change = std::function<void(Training&)>;
  const std::pair<const char*, Change> changes[] = {
      {"seed", [](Training& t) { t.options.seed = 2; }},
      {"optimizer", [](Training& t) { t.options.optimizer.adamw.lr = 0.5; }},
      {"model", [](Training& t) { t.model.dropout(0.5); }},
      {"mesh",
       [](Training& t) {
         t.options.mesh = {3, 1, 1};
       }},
      {"clip_norm", [](Training& t) { t.options.clip_norm = 1.0; }},
      {"recompute", [](Training& t) { t.options.recompute = tr::par::Recompute::kFull; }},
  };
  for (const MeshShape& mesh : {MeshShape{1, 1, 3}, MeshShape{1, 3, 1}, MeshShape{3, 1, 1}}) {
    for (const auto& [name, change] : changes) {
      if (std::string(name) == "mesh" && mesh.dp == 3) continue;
      on_ranks(3, [&, change = &change, name = name](std::unique_ptr<tr::par::Comm> world) {
        Model model(tr::par::Loss::kCrossEntropy);
        model.linear(6, 6, Split::kColumn).linear(6, 6, Split::kRow).linear(6, 3, Split::kColumn);
        Training t = of(mesh, model, 1);
        if (world->rank() == 2) (*change)(t);
        auto compute = tr::par::make_host_compute("ref");
        const auto made = Trainer::create(std::move(world), *compute.value(), t.model, t.options);
        ASSERT_FALSE(made);
        EXPECT_EQ(made.error().code, TR_MISMATCH);
        EXPECT_EQ(made.error().message.find("rank 2 has another " + std::string(name)), 0u)
            << made.error().message;
      });
    }
  }
}

TEST(Precision, SixteenBitTypesFollowFp32) {
  Training full = of({1, 1, 1}, megatron_model());
  full.steps = 20;
  const Curve expected = train(full);
  for (const DType type : {DType::kBFloat16, DType::kFloat16}) {
    for (const MeshShape& mesh : {MeshShape{1, 1, 1}, MeshShape{2, 2, 2}}) {
      Training t = of(mesh, megatron_model(), 2);
      t.steps = full.steps;
      t.options.type = type;
      t.options.zero = mesh.dp > 1 ? 1 : 0;
      if (type == DType::kFloat16) t.options.scaler = tr::par::LossScaler::fixed(1024);
      const Curve curve = train(t);
      for (int i = 0; i < t.steps; ++i) {
        // llm.c's gate.
        EXPECT_NEAR(curve.loss[static_cast<std::size_t>(i)],
                    expected.loss[static_cast<std::size_t>(i)], 0.05)
            << tr::par::name_of(type) << ' ' << name_of(mesh) << " step " << i;
      }
    }
  }
}

TEST(Precision, AnOverflowIsSkippedByAllRanksAndHalvesTheScale) {
  Training t = of({2, 1, 2}, megatron_model(), 1);
  t.options.type = DType::kFloat16;
  t.options.scaler = tr::par::LossScaler::dynamic();
  t.options.scaler.restore(4294967296.0, 0);  // 2^32: gradients of fp16 overflow at once
  on_mesh(t, [&](Trainer& trainer, int) {
    const Blobs data(t.rows, t.features, t.classes);
    double scale = 4294967296.0;
    bool stepped = false;
    for (int step = 0; step < 40 && !stepped; ++step) {
      const auto report = trainer.step(data, batch_of(t, step));
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_EQ(report.value().loss_scale, scale);
      stepped = !report.value().skipped;
      if (!stepped) scale /= 2;
    }
    EXPECT_TRUE(stepped);
    EXPECT_LT(scale, 4294967296.0);
    EXPECT_EQ(trainer.steps(), 1);
    EXPECT_TRUE(trainer.check_replicas());
  });
}

TEST(Clipping, TheNormIsThatOfTheWholeModelInEveryLayout) {
  Training t = of({1, 1, 1}, megatron_model());
  t.options.clip_norm = 0.1;
  const Curve serial = train(t);
  EXPECT_GT(serial.norm[0], 0.1) << "something is clipped";
  for (const MeshShape& mesh : shapes_of(4)) {
    for (const int zero : {0, 2}) {
      Training p = of(mesh, megatron_model());
      p.options.clip_norm = 0.1;
      p.options.zero = zero;
      const Curve curve = train(p);
      EXPECT_LE(largest_difference(serial.norm, curve.norm), 1e-5) << name_of(mesh);
      EXPECT_LE(largest_difference(serial.loss, curve.loss), kTolerance) << name_of(mesh);
    }
  }
}

TEST(Dropout, TheSameElementsInEveryLayout) {
  Model model(tr::par::Loss::kCrossEntropy);
  model.linear(16, 32, Split::kColumn).relu().dropout(0.3).linear(32, 32, Split::kRow);
  model.relu().dropout(0.3).linear(32, 32, Split::kColumn).norm().gelu();
  model.linear(32, 8, Split::kRow);
  Model sequences = model;
  sequences.sequence_parallel();
  const Curve serial = train(of({1, 1, 1}, model));
  for (const MeshShape& mesh : shapes_of(8)) {
    EXPECT_LE(largest_difference(serial.loss, train(of(mesh, model, 2)).loss), kTolerance)
        << name_of(mesh);
    if (32 / mesh.dp / 2 % mesh.tp != 0) continue;
    EXPECT_LE(largest_difference(serial.loss, train(of(mesh, sequences, 2)).loss), kTolerance)
        << name_of(mesh) << " sequence parallel";
  }
}

TEST(Compression, Bf16AndInt8StayNearTheExactRun) {
  Training t = of({4, 1, 1}, megatron_model(), 1);
  t.steps = 30;
  const Curve exact = train(t);
  for (const bool int8 : {false, true}) {
    // A hook belongs to a rank.
    Curve curve;
    on_ranks(4, [&](std::unique_ptr<tr::par::Comm> world) {
      const int rank = world->rank();
      const auto hook = int8 ? tr::par::make_int8_hook() : tr::par::make_bf16_hook();
      auto compute = tr::par::make_host_compute("ref");
      Training mine = t;
      mine.options.hook = hook.get();
      auto trainer = Trainer::create(std::move(world), *compute.value(), mine.model, mine.options);
      ASSERT_TRUE(trainer) << trainer.error().message;
      train_steps(mine, *trainer.value(), 0, mine.steps, rank == 0 ? &curve : nullptr);
      EXPECT_TRUE(trainer.value()->check_replicas());
    });
    ASSERT_EQ(curve.loss.size(), exact.loss.size());
    EXPECT_NEAR(curve.loss.back(), exact.loss.back(), 0.05 * exact.loss.front());
    EXPECT_NE(curve.loss, exact.loss) << "it does compress";
  }
}

}  // namespace
}  // namespace partest
