// Trainer: batches and schedules that do not fit each other evenly, and what a checkpoint costs its
// readers.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "treering/parallel/checkpoint.hpp"
#include "treering/parallel/schedule.hpp"

#include "trainers.hpp"

namespace partest {
namespace {

namespace fs = std::filesystem;
using tr::par::Score;

// ---- Sequence parallelism shares rows evenly, whatever number of them is evaluated.
TEST(Evaluate, AnyNumberOfRowsInEveryLayout) {
  Training serial;
  serial.model = megatron_model();
  serial.steps = 3;
  const std::vector<std::int64_t> counts = {1, 2, 3, 5, 7, 31, 64, 101};
  const auto scores = [&](const Training& t) {
    std::vector<Score> all;
    on_mesh(t, [&](Trainer& trainer, int rank) {
      train_steps(t, trainer, 0, t.steps, nullptr);
      const Blobs data(t.rows, t.features, t.classes);
      for (const std::int64_t count : counts) {
        std::vector<std::int64_t> rows;
        for (std::int64_t i = 0; i < count; ++i) rows.push_back((i * 37 + 5) % t.rows);
        const auto score = trainer.evaluate(data, rows);
        ASSERT_TRUE(score) << count << " rows: " << score.error().message;
        if (rank == 0) all.push_back(score.value());
      }
    });
    return all;
  };
  const std::vector<Score> alone = scores(serial);
  for (const MeshShape& mesh : {MeshShape{1, 1, 2}, MeshShape{1, 1, 4}, MeshShape{2, 1, 2},
                                MeshShape{1, 2, 4}, MeshShape{2, 2, 2}}) {
    for (const std::int64_t micro_batch : {0, 4}) {
      Training t = serial;
      t.model.sequence_parallel();
      t.options.mesh = mesh;
      t.options.micro_batch = micro_batch;
      const std::vector<Score> shared = scores(t);
      ASSERT_EQ(shared.size(), alone.size());
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_EQ(shared[i].rows, counts[i]) << name_of(mesh);
        EXPECT_EQ(shared[i].correct, alone[i].correct) << name_of(mesh) << ", " << counts[i];
        EXPECT_NEAR(shared[i].loss_sum, alone[i].loss_sum, 1e-4 * alone[i].loss_sum + 1e-6)
            << name_of(mesh) << ", " << counts[i];
      }
    }
  }
}

// ---- A schedule from a file has its number of micro-batches, whatever a batch has of rows.
Training with_file(const MeshShape& mesh, int micro_batches) {
  Training t;
  t.model = megatron_model();
  t.options.mesh = mesh;
  t.options.rank_order = true;
  const auto schedule = tr::par::make_schedule("gpipe", mesh.pp, micro_batches);
  EXPECT_TRUE(schedule);
  t.options.schedule_csv = tr::par::to_csv(schedule.value());
  return t;
}

TEST(ScheduleFile, EveryBatchIsCutIntoItsMicroBatches) {
  for (const MeshShape& mesh : {MeshShape{1, 2, 1}, MeshShape{2, 2, 1}, MeshShape{1, 4, 1}}) {
    for (const std::int64_t rows : {32, 9, 5, 4, 3, 2}) {
      if (rows < mesh.dp) continue;
      Training t = with_file(mesh, 4);
      t.batch = rows;
      const Curve own = train(t);
      // The same cut without a file.
      Training same = t;
      same.options.schedule_csv.clear();
      same.options.micro_batches = 4;
      same.options.schedule = "gpipe";
      const Curve named = train(same);
      EXPECT_EQ(own.loss, named.loss) << name_of(mesh) << ", " << rows << " rows";
      EXPECT_EQ(own.hash, named.hash) << name_of(mesh) << ", " << rows << " rows";
      Training alone = t;
      alone.options.schedule_csv.clear();
      alone.options.mesh = {1, 1, 1};
      EXPECT_LE(largest_difference(train(alone).loss, own.loss), 2e-6)
          << name_of(mesh) << ", " << rows << " rows";
    }
  }
}

std::string creation_error(const Training& t) {
  std::string text;
  on_ranks(t.options.mesh.size(), [&](std::unique_ptr<tr::par::Comm> world) {
    const int rank = world->rank();
    auto compute = tr::par::make_host_compute("ref");
    ASSERT_TRUE(compute);
    const auto made = Trainer::create(std::move(world), *compute.value(), t.model, t.options);
    EXPECT_FALSE(made);
    if (!made && rank == 0) text = made.error().message;
  });
  return text;
}

TEST(ScheduleFile, WhatDoesNotFitIsAnErrorOfTheTrainersCreation) {
  Training t = with_file({1, 2, 1}, 4);
  t.options.micro_batches = 3;
  EXPECT_EQ(creation_error(t), "the schedule is for 4 micro-batches, not 3");
  t = with_file({1, 2, 1}, 4);
  t.options.mesh.pp = 4;
  EXPECT_NE(creation_error(t).find("the schedule is for 2 ranks, but the mesh has pp 4"),
            std::string::npos);
  t = with_file({1, 2, 1}, 4);
  t.options.schedule_csv = "0,F,0,0\n1,F,1";
  EXPECT_NE(creation_error(t).find("line 2"), std::string::npos);
  t.options.schedule_csv = "0,B,0,0\n0,F,0,0\n1,F,1,0\n1,B,1,0\n";
  EXPECT_NE(creation_error(t).find("rank 0"), std::string::npos) << creation_error(t);
  t = with_file({1, 2, 1}, 4);
  t.options.schedule_csv.clear();
  t.options.schedule = "fastest";
  EXPECT_NE(creation_error(t).find("fastest"), std::string::npos);
}

TEST(ScheduleFile, AMicroBatchThatIsTooLargeIsRefusedBeforeAnythingIsSent) {
  Training t = with_file({1, 2, 1}, 4);
  t.options.micro_batch = 6;
  on_mesh(t, [&](Trainer& trainer, int) {
    const Blobs data(t.rows, t.features, t.classes);
    const auto done = trainer.step(data, batch_of(t, 0));  // 32 rows: 4 of 8
    ASSERT_FALSE(done);
    EXPECT_NE(done.error().message.find("8 rows; micro_batch allows 6"), std::string::npos)
        << done.error().message;
    train_steps(t, trainer, 0, 0, nullptr);
    Training smaller = t;
    smaller.batch = 24;
    train_steps(smaller, trainer, 0, 2, nullptr);
  });
}

// ---- Activations: what is said to be needed is, and little more.
TEST(ActivationBytes, BoundWhatAStepTakes) {
  Model wide(tr::par::Loss::kCrossEntropy);
  wide.linear(64, 512, Split::kColumn).relu().linear(512, 512, Split::kRow).relu();
  wide.linear(512, 512, Split::kColumn).relu().linear(512, 8, Split::kRow);
  struct Case {
    MeshShape mesh;
    std::int64_t micro_batch;
    const char* schedule;
    tr::par::Recompute recompute;
    DType type;
  };
  using tr::par::Recompute;
  for (const Case& c : {Case{{1, 1, 1}, 0, "1f1b", Recompute::kNone, DType::kFloat32},
                        Case{{1, 1, 1}, 0, "1f1b", Recompute::kActivation, DType::kFloat32},
                        Case{{1, 1, 1}, 64, "1f1b", Recompute::kFull, DType::kFloat32},
                        Case{{1, 1, 1}, 0, "1f1b", Recompute::kNone, DType::kBFloat16},
                        Case{{1, 2, 1}, 64, "gpipe", Recompute::kNone, DType::kFloat32},
                        Case{{1, 2, 1}, 64, "1f1b", Recompute::kNone, DType::kFloat32},
                        Case{{1, 4, 1}, 32, "zb-h1", Recompute::kNone, DType::kFloat32},
                        Case{{1, 2, 1}, 64, "zb-h1", Recompute::kNone, DType::kFloat32},
                        Case{{1, 2, 1}, 64, "1f1b", Recompute::kFull, DType::kFloat32},
                        Case{{1, 1, 2}, 0, "1f1b", Recompute::kNone, DType::kFloat32},
                        Case{{2, 1, 1}, 0, "1f1b", Recompute::kNone, DType::kFloat64}}) {
    Training t;
    t.model = wide;
    t.features = 64;
    t.rows = t.batch = 512;
    t.options.mesh = c.mesh;
    t.options.micro_batch = c.micro_batch;
    t.options.schedule = c.schedule;
    t.options.recompute = c.recompute;
    t.options.type = c.type;
    on_ranks(c.mesh.size(), [&](std::unique_ptr<tr::par::Comm> world) {
      const int rank = world->rank();
      auto compute = tr::par::make_host_compute("openblas");
      if (!compute) compute = tr::par::make_host_compute("ref");
      auto trainer = Trainer::create(std::move(world), *compute.value(), t.model, t.options);
      ASSERT_TRUE(trainer) << trainer.error().message;
      tr::par::Memory& memory = compute.value()->memory();
      const std::int64_t before = memory.bytes();
      memory.reset_peak();
      train_steps(t, *trainer.value(), 0, 1, nullptr);
      const auto said = trainer.value()->activation_bytes(t.batch);
      ASSERT_TRUE(said);
      const std::int64_t taken = memory.peak_bytes() - before;
      const std::string what = name_of(c.mesh) + ", " + c.schedule + ", recompute " +
                               std::to_string(static_cast<int>(c.recompute)) + ", rank " +
                               std::to_string(rank);
      constexpr std::int64_t kSmall = 64 << 10;  // sums, norms, what ranks agree on
      EXPECT_LE(taken, said.value() + kSmall) << what;
      EXPECT_GE(taken + kSmall, said.value() / 10 * 7) << what;
    });
  }
}

// ---- Checkpoints: each rank reads what it needs.
TEST(Checkpoint, ARankReadsOnlyTheFilesThatItNeeds) {
  char name[] = "/tmp/treering-trainer-XXXXXX";
  const fs::path folder = ::mkdtemp(name);
  Training t;
  t.model = megatron_model();
  t.options.mesh = {2, 2, 1};
  t.options.zero = 1;
  on_mesh(t, [&](Trainer& trainer, int) {
    train_steps(t, trainer, 0, 2, nullptr);
    const tr::Status saved = trainer.save(folder.string());
    ASSERT_TRUE(saved) << saved.error().message;
  });
  // Elements of one rank's file are damaged: in the same layout it alone finds that.
  for (int damaged = 0; damaged < 4; ++damaged) {
    const fs::path file = folder / "step-2" / ("rank-" + std::to_string(damaged));
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-3, std::ios::end);
    const char kept = static_cast<char>(bytes.peek());
    bytes.put(static_cast<char>(kept ^ 1));
    bytes.flush();
    on_mesh(t, [&](Trainer& trainer, int rank) {
      const tr::Status loaded = trainer.load(folder.string());
      ASSERT_FALSE(loaded);
      const std::string& said = loaded.error().message;
      EXPECT_EQ(said.rfind("rank " + std::to_string(damaged) + ": ", 0), 0u) << rank << said;
      EXPECT_NE(said.find("checksum"), std::string::npos) << said;
    });
    // One rank alone needs all of them.
    Training alone = t;
    alone.options.mesh = {1, 1, 1};
    on_mesh(alone, [&](Trainer& trainer, int) { EXPECT_FALSE(trainer.load(folder.string())); });
    bytes.seekp(-3, std::ios::end);
    bytes.put(kept);
  }
  on_mesh(t, [&](Trainer& trainer, int) { EXPECT_TRUE(trainer.load(folder.string())); });
  fs::remove_all(folder);
}

TEST(Checkpoint, AFolderIsTriedBeforeItIsNeeded) {
  char name[] = "/tmp/treering-trainer-XXXXXX";
  const fs::path folder = ::mkdtemp(name);
  EXPECT_TRUE(tr::par::check_checkpoint_folder((folder / "a" / "b").string()));
  EXPECT_TRUE(fs::is_empty(folder / "a" / "b"));
  std::ofstream(folder / "file") << "x";
  const tr::Status done = tr::par::check_checkpoint_folder((folder / "file" / "b").string());
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("file/b"), std::string::npos) << done.error().message;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace partest
