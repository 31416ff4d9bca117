// A rank is killed at any moment: every other rank returns an error that names it, soon, and
// nothing is left.
#include <chrono>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "faults/moments.hpp"
#include "faults/private_dirs.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kLimitS = 2.0;

class Kill : public testing::Test {
 protected:
  void SetUp() override {
    if (!dirs_.are_private())
      GTEST_SKIP() << "needs root: a mount namespace with a /tmp of its own";
  }
  void TearDown() override {
    if (dirs_.are_private()) {
      EXPECT_EQ(dirs_.left_behind(), std::set<std::string>{});
    }
  }

 private:
  PrivateDirs dirs_;
};

// Collectives of changing sizes until one fails; what was wrong with the failure.
std::string run_until_failure(tr_comm_t comm, int victim) {
  std::vector<float> a(1 << 20, 1.0f), b(1 << 20);
  for (int i = 0;; ++i) {
    constexpr std::uint64_t kCounts[] = {1, 1000, 100'000, 1 << 20, 17};
    const std::uint64_t count = kCounts[i % 5];
    const Clock::time_point start = Clock::now();
    tr_result_t r = TR_SUCCESS;
    switch (i % 4) {
      case 0:
        r = tr_all_reduce(a.data(), b.data(), count, TR_FLOAT32, TR_SUM, comm, nullptr);
        break;
      case 1:
        r = tr_broadcast(a.data(), b.data(), count, TR_FLOAT32, i % 2, comm, nullptr);
        break;
      case 2:
        r = tr_barrier(comm, nullptr);
        break;
      default:
        r = tr_reduce(a.data(), b.data(), count, TR_FLOAT32, TR_MAX, 1, comm, nullptr);
        break;
    }
    if (r == TR_SUCCESS) continue;
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const std::string text = tr_get_last_error();
    if (seconds > kLimitS) return "took " + std::to_string(seconds) + " s to fail: " + text;
    if (r != TR_REMOTE_ERROR) return "failed otherwise: " + text;
    if (text.find("rank " + std::to_string(victim)) == std::string::npos)
      return "does not name the dead rank: " + text;
    if (tr_all_reduce(a.data(), b.data(), 1, TR_FLOAT32, TR_SUM, comm, nullptr) != r)
      return "the next call did not fail";
    return {};
  }
}

TEST_F(Kill, EverySurvivorNamesTheDeadRank) {
  std::mt19937 random(test_seed());
  for (int round = 0; round < 20; ++round) {
    const int n = 2 + static_cast<int>(random() % 4);
    const int victim = static_cast<int>(random() % n);
    const long moment_us = static_cast<long>(random() % 30'000);
    const auto body = [&](tr_comm_t comm, int rank, int) -> std::string {
      if (rank == victim) die_after_us(moment_us);
      return run_until_failure(comm, victim);
    };
    EXPECT_EQ(run_ranks(Mode::kProcesses, n, body, 30),
              "rank " + std::to_string(victim) + ": died of signal 9\n")
        << "round " << round << ", n " << n << ", killed after " << moment_us << " us";
  }
}

// Killed while the communicator forms: the others' init fails, in bounded time, and leaves nothing.
TEST_F(Kill, DuringInit) {
  ::setenv("TR_INIT_TIMEOUT_S", "3", 1);
  std::mt19937 random(7);
  for (int round = 0; round < 6; ++round) {
    tr_unique_id_t id;
    int fds[2];
    ASSERT_EQ(::pipe(fds), 0);
    const pid_t root = ::fork();
    if (root == 0) {
      tr_comm_t comm;
      if (tr_get_unique_id(&id) != TR_SUCCESS || ::write(fds[1], &id, sizeof id) != sizeof id)
        ::_exit(9);
      ::_exit(tr_comm_init_rank(&comm, 3, id, 0) == TR_SUCCESS ? 1 : 0);
    }
    ASSERT_EQ(::read(fds[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
    const pid_t victim = ::fork();
    if (victim == 0) {
      die_after_us(static_cast<long>(random() % 3000));
      tr_comm_t comm;
      (void)tr_comm_init_rank(&comm, 3, id, 1);
      ::pause();
    }
    int status = 0;
    ASSERT_EQ(::waitpid(root, &status, 0), root);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    ASSERT_EQ(::waitpid(victim, &status, 0), victim);
    ::close(fds[0]);
    ::close(fds[1]);
  }
  ::unsetenv("TR_INIT_TIMEOUT_S");
}

}  // namespace
}  // namespace treering::test
