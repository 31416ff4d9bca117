// V13: a training that was saved and loaded goes on bit for bit; in another layout with the same
// parameters. A kill while it saves loses nothing; files that are damaged are refused by name.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include "trainers.hpp"

namespace partest {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/treering-checkpoint-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path() const { return path_; }

 private:
  std::string path_;
};

Training of(const MeshShape& mesh, int zero = 0) {
  Training t;
  t.model = megatron_model();
  t.options.mesh = mesh;
  t.options.rank_order = true;
  t.options.zero = zero;
  t.options.micro_batch = 4;
  return t;
}

bool is_same(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

struct V13 : ::testing::Test {
  Folder folder;
};

// Parameters, the optimizer's step, the place in the data, dropout's random numbers, the loss scale
// (one that overflows first; one that grows after the eighth step).
TEST_F(V13, GoesOnBitForBit) {
  struct Case {
    MeshShape mesh;
    int zero;
    DType type;
    bool has_dropout = false;
    double scale = 1.0;
  };
  const Case cases[] = {
      {{1, 1, 1}, 0, DType::kFloat32, true},  {{2, 1, 1}, 2, DType::kFloat64},
      {{1, 1, 2}, 0, DType::kFloat32, true},  {{2, 2, 1}, 1, DType::kFloat16, true, 4096.0},
      {{4, 1, 1}, 3, DType::kBFloat16, true}, {{2, 2, 2}, 1, DType::kBFloat16},
      {{4, 1, 2}, 3, DType::kFloat32},        {{1, 4, 2}, 0, DType::kFloat16, true, 16777216.0},
      {{2, 2, 1}, 0, DType::kFloat64}};
  for (const Case& c : cases) {
    SCOPED_TRACE(name_of(c.mesh) + " zero " + std::to_string(c.zero));
    const Folder mine;
    Training t = of(c.mesh, c.zero);
    t.options.type = c.type;
    t.steps = 10;
    if (c.has_dropout) {
      t.model = Model(tr::par::Loss::kCrossEntropy);
      t.model.linear(16, 32, Split::kColumn).relu().dropout(0.3).linear(32, 32, Split::kRow);
      t.model.relu().dropout(0.3).linear(32, 32, Split::kColumn).gelu().linear(32, 8, Split::kRow);
    }
    if (c.scale > 1.0) {
      t.options.scaler = tr::par::LossScaler::dynamic();
      t.options.scaler.restore(c.scale, tr::par::LossScaler::kGrowthInterval - 8);
    }
    const Curve whole = train(t);
    Curve parts;
    on_mesh(t, [&](Trainer& trainer, int rank) {
      train_steps(t, trainer, 0, 6, rank == 0 ? &parts : nullptr);
      const tr::Status saved = trainer.save(mine.path());
      ASSERT_TRUE(saved) << saved.error().message;
    });
    if (c.scale > 1.0) t.options.scaler = tr::par::LossScaler::dynamic();
    on_mesh(t, [&](Trainer& trainer, int rank) {
      const tr::Status loaded = trainer.load(mine.path());
      ASSERT_TRUE(loaded) << loaded.error().message;
      EXPECT_EQ(trainer.steps() < 6, c.scale > 4096.0) << "steps that overflowed are none";
      EXPECT_EQ(trainer.position(), 6 * t.batch);
      train_steps(t, trainer, 6, 10, rank == 0 ? &parts : nullptr);
      const auto hash = trainer.check_replicas();
      ASSERT_TRUE(hash);
      if (rank == 0) parts.hash = hash.value();
    });
    EXPECT_EQ(whole.loss, parts.loss);
    EXPECT_TRUE(is_same(whole.norm, parts.norm));  // not a number where a step overflowed
    EXPECT_EQ(whole.scale, parts.scale);
    EXPECT_EQ(whole.scale.front(), c.scale);
    EXPECT_EQ(whole.scale.back(), c.scale == 4096.0 ? 8192.0 : whole.scale.back());
    EXPECT_EQ(whole.hash, parts.hash);
  }
}

// All elements of all parameters, put together from the ranks' pieces by this test.
std::vector<double> whole_parameters(const Training& t, const std::string& load_from,
                                     const std::string& save_to) {
  const std::vector<tr::par::ParameterSpec> specs = t.model.parameters();
  std::vector<std::size_t> begin;
  std::size_t total = 0;
  for (const auto& spec : specs) {
    begin.push_back(total);
    total += static_cast<std::size_t>(spec.rows * spec.cols);
  }
  std::vector<double> all(total, std::nan(""));
  std::mutex mutex;
  on_mesh(t, [&](Trainer& trainer, int) {
    if (!load_from.empty()) {
      const tr::Status loaded = trainer.load(load_from);
      ASSERT_TRUE(loaded) << loaded.error().message;
    } else {
      train_steps(t, trainer, 0, 5, nullptr);
    }
    if (!save_to.empty()) {
      const tr::Status saved = trainer.save(save_to);
      ASSERT_TRUE(saved) << saved.error().message;
    }
    const tr::par::Coordinates at = trainer.mesh().at();
    const std::lock_guard lock(mutex);
    for (const auto& piece : trainer.parameters().pieces()) {
      const auto& spec = specs[static_cast<std::size_t>(piece.number)];
      const std::int64_t tp = t.options.mesh.tp;
      const bool cols = spec.layout == tr::par::Layout::kColumns;
      const bool rows = spec.layout == tr::par::Layout::kRows;
      const std::int64_t width = cols ? spec.cols / tp : spec.cols;
      for (std::int64_t i = 0; i < piece.master.elements(); ++i) {
        const std::int64_t local = piece.first + i;
        const std::int64_t row = local / width + (rows ? at.tp * spec.rows / tp : 0);
        const std::int64_t col = local % width + (cols ? at.tp * width : 0);
        all[begin[static_cast<std::size_t>(piece.number)] +
            static_cast<std::size_t>(row * spec.cols + col)] =
            static_cast<const float*>(piece.master.data)[i];
      }
    }
  });
  return all;
}

TEST_F(V13, LoadsIntoAnotherLayout) {
  const std::vector<double> saved = whole_parameters(of({4, 1, 2}), "", folder.path());
  for (const double x : saved) ASSERT_FALSE(std::isnan(x));
  for (const Training& t : {of({2, 2, 2}), of({1, 1, 1}), of({1, 4, 1}, 1), of({4, 1, 1}, 3),
                            of({1, 1, 4}), of({8, 1, 1}, 2)}) {
    EXPECT_EQ(whole_parameters(t, folder.path(), ""), saved) << name_of(t.options.mesh);
  }
  // And goes on as the old layout would have.
  Training old = of({4, 1, 2}), fresh = of({2, 2, 2});
  Curve a, b;
  for (const auto& [t, curve] : {std::pair(&old, &a), std::pair(&fresh, &b)}) {
    on_mesh(*t, [&, t = t, curve = curve](Trainer& trainer, int rank) {
      ASSERT_TRUE(trainer.load(folder.path()));
      train_steps(*t, trainer, 5, 10, rank == 0 ? curve : nullptr);
    });
  }
  EXPECT_LE(largest_difference(a.loss, b.loss), 2e-6);
}

// The step of the checkpoint that would be loaded; 0: there is none.
int latest_step(const std::string& dir) {
  int step = 0;
  std::ifstream(fs::path(dir) / "latest") >> step;
  return step;
}

// A process saves for ever and is killed at a moment of the test's choosing; what is left must
// load.
TEST_F(V13, AKillWhileSavingLosesNothing) {
  const Training t = of({1, 1, 1});
  int loaded_steps = 0;
  for (int round = 0; round < 24; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto world = tr::par::make_threads_comms(1);
      auto compute = tr::par::make_host_compute("ref");
      if (!world || !compute) ::_exit(1);
      auto trainer =
          Trainer::create(std::move(world.value()[0]), *compute.value(), t.model, t.options);
      if (!trainer) ::_exit(2);
      if (round > 0 && !trainer.value()->load(folder.path())) ::_exit(3);
      const Blobs data(t.rows, t.features, t.classes);
      for (int step = static_cast<int>(trainer.value()->steps());; ++step) {
        if (!trainer.value()->step(data, batch_of(t, step))) ::_exit(4);
        if (!trainer.value()->save(folder.path())) ::_exit(5);
      }
    }
    // Not before it has saved something, however slow the machine is; then at a random moment.
    int status = 0;
    while (latest_step(folder.path()) <= loaded_steps && ::waitpid(child, &status, WNOHANG) == 0) {
      ::usleep(500);
    }
    ::usleep(
        static_cast<useconds_t>(tr::par::random_bits(5, 0, static_cast<unsigned>(round)) % 20000));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, &status, 0), child) << "the child ended by itself";
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);
    on_mesh(t, [&](Trainer& trainer, int) {
      const tr::Status loaded = trainer.load(folder.path());
      ASSERT_TRUE(loaded) << "round " << round << ": " << loaded.error().message;
      EXPECT_GE(trainer.steps(), loaded_steps);
      loaded_steps = static_cast<int>(trainer.steps());
    });
  }
  EXPECT_GE(loaded_steps, 24) << "steps were saved in between";
  // What kills have left goes with the next checkpoint that is saved whole: the two newest stay.
  on_mesh(t, [&](Trainer& trainer, int) {
    ASSERT_TRUE(trainer.load(folder.path()));
    train_steps(t, trainer, loaded_steps, loaded_steps + 1, nullptr);
    ASSERT_TRUE(trainer.save(folder.path()));
  });
  std::size_t checkpoints = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    checkpoints += entry.path().filename().string().starts_with("step-") ? 1 : 0;
  }
  EXPECT_EQ(checkpoints, 2u);
}

std::string load_error(const Training& t, const std::string& path) {
  std::string text;
  on_mesh(t, [&](Trainer& trainer, int rank) {
    const tr::Status loaded = trainer.load(path);
    ASSERT_FALSE(loaded);
    if (rank == 0) text = loaded.error().message;
  });
  return text;
}

TEST_F(V13, DamagedFilesAreRefusedOnAllRanks) {
  const Training t = of({2, 1, 2}, 1);
  EXPECT_NE(load_error(t, folder.path()).find("no checkpoint"), std::string::npos);
  whole_parameters(t, "", folder.path());
  const fs::path file = fs::path(folder.path()) / "step-5" / "rank-2";
  std::ifstream in(file, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  const auto write = [&](const std::string& bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  };
  write(good.substr(0, good.size() - 1));
  EXPECT_NE(load_error(t, folder.path()).find("rank-2 is cut short"), std::string::npos);
  std::string flipped = good;
  flipped[good.size() - 5] ^= 1;
  write(flipped);
  EXPECT_NE(load_error(t, folder.path()).find("rank-2 is cut short or damaged"), std::string::npos);
  for (const auto& [from, to] :
       {std::pair("position 160", "position -16"), std::pair("step 5", "step 7"),
        std::pair("loss_scale 1", "loss_scale 0")}) {
    std::string changed = good;
    const std::size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, std::strlen(from), to);
    write(changed);
    EXPECT_NE(load_error(t, folder.path()).find("rank-2"), std::string::npos) << to;
  }
  write("treering checkpoint 1" + good.substr(21));
  EXPECT_NE(load_error(t, folder.path()).find("rank-2: not a checkpoint"), std::string::npos);
  for (std::size_t cut = 0; cut < good.find("end\n"); cut += 7) {
    write(good.substr(0, cut));
    EXPECT_NE(load_error(t, folder.path()).find("rank-2"), std::string::npos) << cut;
  }
  fs::remove(file);
  EXPECT_NE(load_error(t, folder.path()).find("rank-2"), std::string::npos);
  write(good);
  Training other = t;
  other.model = gather_model();
  other.model.gelu();
  EXPECT_NE(load_error(other, folder.path()).find("another model"), std::string::npos)
      << load_error(other, folder.path());
  Training wide = t;
  wide.options.type = DType::kFloat64;
  EXPECT_NE(load_error(wide, folder.path()).find("fp32"), std::string::npos);
  Training sgd = t;
  sgd.options.optimizer.is_adamw = false;
  EXPECT_NE(load_error(sgd, folder.path()).find("another optimizer"), std::string::npos);
}

}  // namespace
}  // namespace partest
