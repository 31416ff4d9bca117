// V20: what goes wrong on one of 2, 4 and 8 ranks ends on all of them, in time, with the rank and
// what it did named. (A killed process: tests/examples/test_train.py.)
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>

#include "trainers.hpp"

namespace partest {
namespace {

using tr::par::Comm;
using tr::par::view_of;

constexpr int kSizes[] = {2, 4, 8};

// A deadline for waits that must end by it, for as long as this lives.
class Deadline {
 public:
  explicit Deadline(const char* seconds) { ::setenv("TR_TIMEOUT_S", seconds, 1); }
  ~Deadline() { ::setenv("TR_TIMEOUT_S", "60", 1); }
};

// body(comm, x) on n ranks, x 1000 floats; what each was told. Nobody leaves before all have been
// told, as a rank does that hangs elsewhere.
using Said = std::vector<std::string>;
Said said_by(int n, const std::function<tr::Status(Comm&, std::vector<double>&)>& body) {
  Said said(static_cast<std::size_t>(n));
  std::mutex mutex;
  std::condition_variable all_are_told;
  int told = 0;
  on_ranks(n, [&](std::unique_ptr<Comm> comm) {
    std::vector<double> x(2000, 1.0);  // 1000 elements of any type, in and out
    const tr::Status status = body(*comm, x);
    std::unique_lock lock(mutex);
    said[static_cast<std::size_t>(comm->rank())] = status ? "" : status.error().message;
    ++told;
    all_are_told.notify_all();
    all_are_told.wait(lock, [&] { return told == n; });
  });
  return said;
}

tr::Status reduce(Comm& comm, std::vector<double>& x, std::int64_t count,
                  DType type = DType::kFloat32) {
  const auto view = view_of(x.data(), 1, count, type);
  const auto mark = comm.all_reduce(view, view);
  return mark ? comm.wait(mark.value()) : tr::Status(mark.error());
}
tr::Status gather(Comm& comm, std::vector<double>& x) {
  const auto mark =
      comm.all_gather(view_of(x.data(), 1, 125, DType::kFloat32),
                      view_of(x.data() + 1000, 1, 125 * comm.size(), DType::kFloat32));
  return mark ? comm.wait(mark.value()) : tr::Status(mark.error());
}

// Whoever is told something is told all of `words`; at least one is.
void expect_words(const Said& said, const std::vector<std::string>& words) {
  int told = 0;
  for (const std::string& text : said) {
    if (text.empty()) continue;
    ++told;
    for (const std::string& word : words) {
      EXPECT_NE(text.find(word), std::string::npos) << '"' << word << "\" is missing in: " << text;
    }
  }
  EXPECT_GT(told, 0);
}

TEST(V20, ASkippedCollectiveNamesWhoSkippedIt) {
  const Deadline deadline("3");
  for (const int n : kSizes) {
    const int bad = n - 1;
    const Said said = said_by(n, [&](Comm& comm, std::vector<double>& x) -> tr::Status {
      if (tr::Status s = reduce(comm, x, 1000); !s) return s;
      return comm.rank() == bad ? tr::Status() : reduce(comm, x, 1000);
    });
    expect_words(said, {"all_reduce", "rank " + std::to_string(bad)});
    for (int r = 0; r < bad; ++r) {
      EXPECT_NE(said[static_cast<std::size_t>(r)], "") << "rank " << r << " of " << n;
    }
  }
}

TEST(V20, ACollectiveWithAnotherCountTypeOrOrderIsNamed) {
  using Body = std::function<tr::Status(Comm&, std::vector<double>&, bool)>;
  const std::tuple<const char*, Body, std::vector<std::string>> faults[] = {
      {"count",
       [](Comm& comm, std::vector<double>& x, bool is_bad) {
         return reduce(comm, x, is_bad ? 999 : 1000);
       },
       {"all_reduce", "999", "1000"}},
      {"type",
       [](Comm& comm, std::vector<double>& x, bool is_bad) {
         return reduce(comm, x, 1000, is_bad ? DType::kFloat64 : DType::kFloat32);
       },
       {"all_reduce", "float32", "float64"}},
      {"order",
       [](Comm& comm, std::vector<double>& x, bool is_bad) -> tr::Status {
         if (is_bad) {
           if (tr::Status s = gather(comm, x); !s) return s;
           return reduce(comm, x, 1000);
         }
         if (tr::Status s = reduce(comm, x, 1000); !s) return s;
         return gather(comm, x);
       },
       {"all_reduce", "all_gather"}},
  };
  const Deadline deadline("10");
  for (const int n : kSizes) {
    for (const auto& [name, body, words] : faults) {
      SCOPED_TRACE(std::string(name) + ", " + std::to_string(n) + " ranks");
      const Said said = said_by(n, [&, body = &body](Comm& comm, std::vector<double>& x) {
        return (*body)(comm, x, comm.rank() == 1);
      });
      std::vector<std::string> all = words;
      all.emplace_back("rank 1");
      expect_words(said, all);
      // Nobody goes on as if nothing had been.
      for (const std::string& text : said) EXPECT_NE(text, "");
    }
  }
}

// Rows whose first feature is not a number, on one rank.
class Spoilt final : public tr::par::Data {
 public:
  Spoilt(const tr::par::Data& data, bool is_here) : data_(data), is_here_(is_here) {}
  std::int64_t rows() const override { return data_.rows(); }
  std::int64_t features() const override { return data_.features(); }
  void read(std::span<const std::int64_t> rows, std::span<float> features,
            std::span<std::int32_t> labels) const override {
    data_.read(rows, features, labels);
    if (is_here_ && !features.empty()) features[0] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  const tr::par::Data& data_;
  bool is_here_;
};

TEST(V20, NaNOnOneRankIsNamedOnAllBeforeItSpreads) {
  for (const int n : kSizes) {
    for (const int zero : {0, 3}) {
      Training t;
      t.model = megatron_model();
      t.options.mesh = {n, 1, 1};
      t.options.zero = zero;
      t.options.check_finite = true;
      on_mesh(t, [&](Trainer& trainer, int rank) {
        const Blobs data(t.rows, t.features, t.classes);
        const Spoilt spoilt(data, rank == n - 1);
        ASSERT_TRUE(trainer.step(data, batch_of(t, 0)));
        const auto report = trainer.step(spoilt, batch_of(t, 1));
        ASSERT_FALSE(report);
        const std::string& text = report.error().message;
        for (const std::string& word :
             {"rank " + std::to_string(n - 1), std::string("layer"), std::string("not finite")}) {
          EXPECT_NE(text.find(word), std::string::npos) << word << " is missing in: " << text;
        }
      });
    }
  }
}

TEST(V20, ASlowRankChangesNothing) {
  for (const MeshShape& mesh : {MeshShape{2, 1, 1}, MeshShape{2, 2, 1}, MeshShape{2, 2, 2}}) {
    Training t;
    t.model = megatron_model();
    t.options.mesh = mesh;
    t.options.micro_batch = 8;
    t.steps = 3;
    const Curve expected = train(t);
    Curve slow;
    on_mesh(t, [&](Trainer& trainer, int rank) {
      for (int step = 0; step < t.steps; ++step) {
        if (rank + 1 == mesh.size()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        train_steps(t, trainer, step, step + 1, rank == 0 ? &slow : nullptr);
      }
    });
    EXPECT_EQ(slow.loss, expected.loss) << name_of(mesh);
  }
}

}  // namespace
}  // namespace partest
