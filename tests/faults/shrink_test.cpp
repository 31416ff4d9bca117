// Those who are left go on: tr_comm_shrink after deaths at any moment, of any rank; tr_comm_grow.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <random>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "faults/moments.hpp"
#include "support/ranks.hpp"

// Ranks are forked while the thread of an earlier test's store still ends.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace treering::test {
namespace {

// comm has `size` ranks, this is `rank` of them, and it computes.
std::string works(tr_comm_t comm, int rank, int size) {
  int its_rank = -1, its_size = -1;
  if (tr_comm_rank(comm, &its_rank) != TR_SUCCESS || tr_comm_size(comm, &its_size) != TR_SUCCESS)
    return std::string("the new communicator: ") + tr_get_last_error();
  if (its_rank != rank || its_size != size)
    return "rank " + std::to_string(its_rank) + " of " + std::to_string(its_size) + ", not " +
           std::to_string(rank) + " of " + std::to_string(size);
  for (const std::size_t count : {std::size_t{1}, std::size_t{70'001}}) {
    std::vector<std::int64_t> x(count), sum(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = (rank + 1) * static_cast<std::int64_t>(i + 1);
    if (const tr_result_t r =
            tr_all_reduce(x.data(), sum.data(), count, TR_INT64, TR_SUM, comm, nullptr);
        r != TR_SUCCESS)
      return failure("all_reduce of the new communicator", r);
    for (std::size_t i = 0; i < count; ++i) {
      if (sum[i] != size * (size + 1) / 2 * static_cast<std::int64_t>(i + 1)) return "a wrong sum";
    }
  }
  return failure("barrier of the new communicator", tr_barrier(comm, nullptr));
}

std::string shrinks_to(tr_comm_t comm, int rank, int size) {
  tr_comm_t small = nullptr;
  if (const tr_result_t r = tr_comm_shrink(comm, &small); r != TR_SUCCESS)
    return failure("shrink", r);
  const std::string wrong = works(small, rank, size);
  if (!wrong.empty()) return wrong;
  // The old one: refused, and destroyed without ado.
  float x = 1;
  if (tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, comm, nullptr) != TR_INVALID_USAGE)
    return std::string("the old communicator still works: ") + tr_get_last_error();
  if (const tr_result_t r = tr_comm_destroy(comm); r != TR_SUCCESS) return failure("destroy", r);
  return failure("destroy of the new one", tr_comm_destroy(small));
}

// All-reduces until one fails, as it must when somebody dies.
std::string compute_until_failure(tr_comm_t comm) {
  std::vector<float> x(30'000, 1.0f), y(30'000);
  for (;;) {
    for (const std::size_t count : {std::size_t{3}, x.size()}) {
      const tr_result_t r =
          tr_all_reduce(x.data(), y.data(), count, TR_FLOAT32, TR_SUM, comm, nullptr);
      if (r == TR_REMOTE_ERROR) return {};
      if (r != TR_SUCCESS) return failure("all_reduce", r) + " (expected a remote error)";
    }
  }
}

// Rank 0 has made the unique id and holds the store; the last one is nobody's neighbour at its end.
TEST(Shrink, WhicheverRankDies) {
  for (int victim = 0; victim < 4; ++victim) {
    EXPECT_EQ(run_ranks(
                  Mode::kProcesses, 4,
                  [victim](tr_comm_t comm, int rank, int) -> std::string {
                    if (rank == victim) die_after_us(5000);
                    const std::string wrong = compute_until_failure(comm);
                    if (!wrong.empty()) return wrong;
                    return shrinks_to(comm, rank - (rank > victim), 3);
                  },
                  60),
              killed({victim}));
  }
}

// The others die one after the other; each time those who are left go on, and the last one alone.
TEST(Shrink, DownToOneRank) {
  EXPECT_EQ(run_ranks(
                Mode::kProcesses, 4,
                [](tr_comm_t first, int rank, int) -> std::string {
                  tr_comm_t comm = first;
                  for (int size = 4; size > 1; --size) {
                    if (rank == 4 - size) ::kill(::getpid(), SIGKILL);
                    std::string wrong = compute_until_failure(comm);
                    if (!wrong.empty()) return wrong;
                    tr_comm_t small = nullptr;
                    if (const tr_result_t r = tr_comm_shrink(comm, &small); r != TR_SUCCESS)
                      return failure("shrink", r);
                    wrong = works(small, rank - (5 - size), size - 1);
                    if (!wrong.empty()) return wrong;
                    if (const tr_result_t r = tr_comm_destroy(comm); r != TR_SUCCESS)
                      return failure("destroy", r);
                    comm = small;
                  }
                  return failure("destroy", tr_comm_destroy(comm));
                },
                60),
            killed({0, 1, 2}));
}

// A second one dies while the survivors of the first are in tr_comm_shrink. If it died late, the
// new communicator knows of it; then they shrink once more.
TEST(Shrink, AnotherDiesMeanwhile) {
  std::mt19937 random(test_seed());
  for (int round = 0; round < 12; ++round) {
    const int first = static_cast<int>(random() % 5);
    const int second = (first + 1 + static_cast<int>(random() % 4)) % 5;
    const long moment_us = static_cast<long>(random() % 12'000);
    const auto body = [&](tr_comm_t comm, int rank, int) -> std::string {
      if (rank == first) ::kill(::getpid(), SIGKILL);
      std::string wrong = compute_until_failure(comm);
      if (!wrong.empty()) return wrong;
      if (rank == second) die_after_us(moment_us);
      tr_comm_t small = nullptr;
      if (const tr_result_t r = tr_comm_shrink(comm, &small); r != TR_SUCCESS)
        return failure("shrink", r);
      int size = 0;
      (void)tr_comm_size(small, &size);
      const int now = rank - (rank > first) - (rank > second);
      if (size == 3) {
        wrong = works(small, now, 3);
      } else {
        wrong = compute_until_failure(small);
        if (wrong.empty()) wrong = shrinks_to(small, now, 3);
        return wrong;
      }
      return wrong.empty() ? failure("destroy", tr_comm_destroy(small)) : wrong;
    };
    EXPECT_EQ(run_ranks(Mode::kProcesses, 5, body, 60), killed({first, second}))
        << "round " << round << ", " << moment_us << " us";
  }
}

// A number that threads and processes share.
class SharedCount {
 public:
  SharedCount()
      : count_(static_cast<std::atomic<int>*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  ~SharedCount() { ::munmap(count_, 4096); }
  void add(int more = 1) { count_->fetch_add(more); }
  int get() const { return count_->load(); }
  void wait_for(int least) const {
    while (count_->load() < least) ::usleep(1000);
  }

 private:
  std::atomic<int>* count_;
};

class ShrinkModes : public testing::TestWithParam<Mode> {
 protected:
  void expect_fine(int n, const RankBody& body) {
    EXPECT_EQ(run_ranks(GetParam(), n, body, 40), "");
  }
};

// Nobody died: all are left, and a failed communicator is as new.
TEST_P(ShrinkModes, AfterAMismatchAllAreLeft) {
  expect_fine(3, [](tr_comm_t comm, int rank, int) -> std::string {
    float x[8] = {}, y[8];
    const std::uint64_t count = rank == 1 ? 4 : 8;
    const tr_result_t r = tr_all_reduce(x, y, count, TR_FLOAT32, TR_SUM, comm, nullptr);
    if (r != TR_MISMATCH) return failure("all_reduce", r) + " (expected a mismatch)";
    return shrinks_to(comm, rank, 3);
  });
}

TEST_P(ShrinkModes, AfterAnAbort) {
  expect_fine(3, [](tr_comm_t comm, int rank, int) -> std::string {
    if (rank == 0) (void)tr_comm_abort(comm);
    return shrinks_to(comm, rank, 3);
  });
}

TEST_P(ShrinkModes, WithoutARankThatLeft) {
  expect_fine(3, [](tr_comm_t comm, int rank, int) -> std::string {
    if (rank == 1) return failure("destroy", tr_comm_destroy(comm));
    return shrinks_to(comm, rank / 2, 2);
  });
}

// It is enough that one of them names the unwanted rank, which is told.
TEST_P(ShrinkModes, WithoutARankThatIsNotWanted) {
  expect_fine(4, [](tr_comm_t comm, int rank, int) -> std::string {
    const int unwanted = 2;
    tr_comm_t small = nullptr;
    if (rank == unwanted) {
      const tr_result_t r = tr_comm_shrink(comm, &small);
      const std::string text = tr_get_last_error();
      if (r != TR_REMOTE_ERROR || text.find("without this one (rank 2)") == std::string::npos)
        return "the unwanted rank: " + text;
      return {};
    }
    const tr_result_t r = tr_comm_shrink_without(comm, &unwanted, rank == 3 ? 1 : 0, 0, &small);
    // Those who do not name it may be through before they hear of it only if rank 3 was, too.
    if (r != TR_SUCCESS) return failure("shrink", r);
    const std::string wrong = works(small, rank - (rank > unwanted), 3);
    return wrong.empty() ? failure("destroy", tr_comm_destroy(small)) : wrong;
  });
}

// The deadline names who does not come; the same call again goes on where the first one was.
TEST_P(ShrinkModes, DeadlineNamesWhoDoesNotCome) {
  SharedCount told;
  expect_fine(3, [&told](tr_comm_t comm, int rank, int) -> std::string {
    tr_comm_t small = nullptr;
    if (rank == 1) {
      told.wait_for(2);
    } else {
      const tr_result_t r = tr_comm_shrink_without(comm, nullptr, 0, 200, &small);
      const std::string text = tr_get_last_error();
      told.add();
      if (r != TR_TIMEOUT || text.find("rank 1 has not come, but lives") == std::string::npos)
        return "rank 1 was not named: " + text;
    }
    return shrinks_to(comm, rank, 3);
  });
}

TEST_P(ShrinkModes, AbortEndsIt) {
  SharedCount ended;
  expect_fine(2, [&ended](tr_comm_t comm, int rank, int) -> std::string {
    if (rank == 1) {
      ended.wait_for(1);
      return {};
    }
    std::thread other([comm] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      (void)tr_comm_abort(comm);
    });
    tr_comm_t small = nullptr;
    const tr_result_t r = tr_comm_shrink(comm, &small);
    const std::string text = tr_get_last_error();
    other.join();
    ended.add();
    return r == TR_ABORTED && small == nullptr ? "" : "not ended by the abort: " + text;
  });
}

// A rank that waits for one in tr_comm_shrink must not wait for its deadline.
TEST_P(ShrinkModes, WaitForARankThatShrinks) {
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    if (rank == 1) {
      float x = 0;
      const tr_result_t r = tr_recv(&x, 1, TR_FLOAT32, 0, comm, nullptr);
      const std::string text = tr_get_last_error();
      if (r != TR_REMOTE_ERROR || text.find("rank 0") == std::string::npos ||
          text.find("tr_comm_shrink") == std::string::npos)
        return "not told of the shrink: " + text;
    }
    return shrinks_to(comm, rank, 2);
  });
}

TEST_P(ShrinkModes, BadArguments) {
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    tr_comm_t small = nullptr;
    const int self = rank, nobody = 2;
    const auto refused = [&](tr_result_t r, const char* words) {
      return r == TR_INVALID_ARGUMENT &&
             std::string(tr_get_last_error()).find(words) != std::string::npos;
    };
    if (!refused(tr_comm_shrink(comm, nullptr), "newcomm is NULL")) return tr_get_last_error();
    if (!refused(tr_comm_shrink_without(comm, &self, 1, 0, &small), "this rank itself"))
      return tr_get_last_error();
    if (!refused(tr_comm_shrink_without(comm, &nobody, 1, 0, &small), "ranks 0 to 1"))
      return tr_get_last_error();
    if (!refused(tr_comm_shrink_without(comm, nullptr, 1, 0, &small), "without is NULL"))
      return tr_get_last_error();
    if (!refused(tr_comm_shrink_without(comm, nullptr, 0, -1, &small), "negative"))
      return tr_get_last_error();
    if (!refused(tr_comm_grow(comm, 2, tr_unique_id_t{}, &small), "more than 2"))
      return tr_get_last_error();
    if (!refused(tr_comm_grow(comm, 3, tr_unique_id_t{}, &small), "unique id"))
      return tr_get_last_error();
    // Nothing happened.
    if (const tr_result_t r = tr_barrier(comm, nullptr); r != TR_SUCCESS)
      return failure("barrier", r);
    if (const tr_result_t r = tr_comm_shrink(comm, &small); r != TR_SUCCESS)
      return failure("shrink", r);
    tr_comm_t again = nullptr;
    if (tr_comm_shrink(comm, &again) != TR_INVALID_USAGE || again != nullptr)
      return std::string("shrunk twice: ") + tr_get_last_error();
    return failure("destroy", tr_comm_destroy(small));
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, ShrinkModes, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& mode) { return std::string(mode_name(mode.param)); });

// A stopped rank lives: nobody goes on without it by himself. Told to, they do; and it is told when
// it continues.
TEST(Shrink, WithoutAStoppedRank) {
  SharedCount pid;
  EXPECT_EQ(run_ranks(
                Mode::kProcesses, 3,
                [&pid](tr_comm_t comm, int rank, int) -> std::string {
                  tr_comm_t small = nullptr;
                  if (rank == 1) {
                    pid.add(::getpid());
                    ::kill(::getpid(), SIGSTOP);
                    const tr_result_t r = tr_comm_shrink(comm, &small);
                    return r == TR_REMOTE_ERROR ? "" : failure("expected: out", r) + "?";
                  }
                  pid.wait_for(1);
                  tr_result_t r = tr_comm_shrink_without(comm, nullptr, 0, 200, &small);
                  if (r != TR_TIMEOUT) return failure("not a timeout", r) + "?";
                  const int stopped = 1;
                  r = tr_comm_shrink_without(comm, &stopped, 1, 0, &small);
                  if (r != TR_SUCCESS) return failure("shrink", r);
                  const std::string wrong = works(small, rank / 2, 2);
                  if (rank == 0) ::kill(pid.get(), SIGCONT);
                  if (!wrong.empty()) return wrong;
                  return failure("destroy", tr_comm_destroy(small));
                },
                40),
            "");
}

// Four ranks lose one, go on with three, and take a new one in.
TEST(Grow, ANewRankTakesThePlaceOfADeadOne) {
  auto* const id = static_cast<tr_unique_id_t*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  SharedCount ready;
  const pid_t newcomer = ::fork();
  if (newcomer == 0) {
    ready.wait_for(1);
    tr_comm_t comm = nullptr;
    if (tr_comm_init_rank(&comm, 4, *id, 3) != TR_SUCCESS) ::_exit(1);
    if (!works(comm, 3, 4).empty()) ::_exit(2);
    ::_exit(tr_comm_destroy(comm) == TR_SUCCESS ? 0 : 3);
  }
  EXPECT_EQ(run_ranks(
                Mode::kProcesses, 4,
                [&](tr_comm_t comm, int rank, int) -> std::string {
                  if (rank == 2) ::kill(::getpid(), SIGKILL);
                  std::string wrong = compute_until_failure(comm);
                  if (!wrong.empty()) return wrong;
                  tr_comm_t small = nullptr, grown = nullptr;
                  if (tr_comm_grow(comm, 5, *id, &grown) != TR_REMOTE_ERROR)
                    return "a failed communicator grew";
                  if (const tr_result_t r = tr_comm_shrink(comm, &small); r != TR_SUCCESS)
                    return failure("shrink", r);
                  if (rank == 0) {
                    if (const tr_result_t r = tr_get_unique_id(id); r != TR_SUCCESS)
                      return failure("id", r);
                    ready.add();
                  }
                  ready.wait_for(1);
                  if (const tr_result_t r = tr_comm_grow(small, 4, *id, &grown); r != TR_SUCCESS)
                    return failure("grow", r);
                  wrong = works(grown, rank - (rank > 2), 4);
                  if (!wrong.empty()) return wrong;
                  wrong = works(small, rank - (rank > 2), 3);  // it goes on working
                  if (!wrong.empty()) return wrong;
                  for (tr_comm_t c : {small, grown}) {
                    if (const tr_result_t r = tr_comm_destroy(c); r != TR_SUCCESS)
                      return failure("destroy", r);
                  }
                  return {};
                },
                60),
            killed({2}));
  int status = 0;
  ASSERT_EQ(::waitpid(newcomer, &status, 0), newcomer);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the new rank: status " << status;
  ::munmap(id, 4096);
}

// A new rank that does not come is named.
TEST(Grow, MissingNewRankIsNamed) {
  ::setenv("TR_INIT_TIMEOUT_S", "1", 1);
  tr_comm_t comm = nullptr, grown = nullptr;
  ASSERT_EQ(tr_comm_init_all(&comm, 1), TR_SUCCESS) << tr_get_last_error();
  tr_unique_id_t id;
  ASSERT_EQ(tr_get_unique_id(&id), TR_SUCCESS) << tr_get_last_error();
  EXPECT_EQ(tr_comm_grow(comm, 3, id, &grown), TR_TIMEOUT);
  EXPECT_NE(std::string(tr_get_last_error()).find("ranks 1, 2 of 3 have not joined"),
            std::string::npos)
      << tr_get_last_error();
  EXPECT_EQ(works(comm, 0, 1), "");
  EXPECT_EQ(tr_comm_destroy(comm), TR_SUCCESS);
  ::unsetenv("TR_INIT_TIMEOUT_S");
}

}  // namespace
}  // namespace treering::test
