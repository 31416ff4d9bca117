// Reports of other libraries' users about births and ends (BUGS.md), each under its number.
#include <cstdlib>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "faults/moments.hpp"
#include "faults/private_dirs.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

// Every collective with nothing in it, every type and root, in place and not; then one with
// something.
TEST(Bugs, H01_NothingToSend) {
  EXPECT_EQ(
      run_ranks(Mode::kThreads, 3,
                [](tr_comm_t c, int rank, int size) -> std::string {
                  double guard[8] = {1, 2, 3, 4, 5, 6, 7, 8};
                  const std::vector<std::uint64_t> none(size, 0);
                  const std::uint64_t* z = none.data();
                  for (tr_type_t t = 0; t < TR_NUM_TYPES; ++t) {
                    for (int root = 0; root < size; ++root) {
                      for (const bool in_place : {false, true}) {
                        void* out = guard;
                        void* in = in_place ? out : static_cast<void*>(guard + 4);
                        for (const tr_result_t r :
                             {tr_all_reduce(in, out, 0, t, TR_SUM, c, nullptr),
                              tr_reduce(in, out, 0, t, TR_MAX, root, c, nullptr),
                              tr_broadcast(in, out, 0, t, root, c, nullptr),
                              tr_all_gather(in, out, 0, t, c, nullptr),
                              tr_reduce_scatter(in, out, 0, t, TR_SUM, c, nullptr),
                              tr_gather(in, out, 0, t, root, c, nullptr),
                              tr_scatter(in, out, 0, t, root, c, nullptr),
                              tr_all_to_all(in, out, 0, t, c, nullptr),
                              tr_scan(in, out, 0, t, TR_SUM, c, nullptr),
                              tr_exscan(in, out, 0, t, TR_SUM, c, nullptr),
                              tr_all_gather_v(in, out, z, nullptr, t, c, nullptr),
                              tr_reduce_scatter_v(in, out, z, t, TR_SUM, c, nullptr),
                              tr_all_to_all_v(in, z, nullptr, out, z, nullptr, t, c, nullptr)}) {
                          if (r != TR_SUCCESS) return failure("a call with nothing", r);
                        }
                      }
                    }
                  }
                  for (int i = 0; i < 8; ++i) {
                    if (guard[i] != i + 1) return "the output was touched";
                  }
                  double x = rank, sum = 0;
                  if (tr_all_reduce(&x, &sum, 1, TR_FLOAT64, TR_SUM, c, nullptr) != TR_SUCCESS)
                    return tr_get_last_error();
                  return sum == 3 ? "" : "a wrong sum afterwards";
                }),
      "");
}

// A rank that has left before the first collective of a second communicator.
TEST(Bugs, H13_LeftBeforeTheFirstCollectiveOfASubgroup) {
  EXPECT_EQ(run_ranks(
                Mode::kProcesses, 2,
                [](tr_comm_t comm, int rank, int) -> std::string {
                  tr_comm_t second = nullptr;
                  if (tr_comm_split(comm, 0, rank, &second) != TR_SUCCESS ||
                      tr_barrier(comm, nullptr) != TR_SUCCESS)
                    return tr_get_last_error();
                  if (rank == 0) ::_exit(86);
                  (void)tr_comm_set_option(second, TR_OPT_TIMEOUT_MS, 30'000);
                  float x = 1, y;
                  const tr_result_t r =
                      tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, second, nullptr);
                  const std::string text = tr_get_last_error();
                  if (r != TR_REMOTE_ERROR || text.find("rank 0") == std::string::npos)
                    return std::string(tr_result_string(r)) + ": " + text;
                  return failure("destroy", tr_comm_destroy(second));
                },
                60),
            "rank 0: exit status 86\n");
}

// Forked while calls are under way, and the parent's threads with them.
TEST(Bugs, H16_ForkDuringACollective) {
  EXPECT_EQ(run_ranks(
                Mode::kProcesses, 2,
                [](tr_comm_t comm, int rank, int) -> std::string {
                  std::vector<float> x(200'000, 1.0f), y(200'000);
                  tr_stream_t stream = nullptr;
                  if (tr_stream_create(&stream) != TR_SUCCESS) return tr_get_last_error();
                  for (int i = 0; i < 20; ++i) {
                    if (tr_all_reduce(x.data(), y.data(), x.size(), TR_FLOAT32, TR_SUM, comm,
                                      stream) != TR_SUCCESS)
                      return tr_get_last_error();
                    const pid_t child = rank == i % 2 ? ::fork() : -1;
                    if (child == 0) {
                      // Its own work, a refusal, and its end without the parent's exit handlers.
                      std::vector<char> work(1 << 16, 'x');
                      float one = 1;
                      const tr_result_t r =
                          tr_all_reduce(&one, &one, 1, TR_FLOAT32, TR_SUM, comm, nullptr);
                      ::_exit(r == TR_INVALID_USAGE ? 0 : 1);
                    }
                    if (const tr_result_t r = tr_stream_synchronize(stream); r != TR_SUCCESS)
                      return failure("the parent", r);
                    int status = 0;
                    if (child > 0 && (::waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
                                      WEXITSTATUS(status) != 0))
                      return "the child's status: " + std::to_string(status);
                    if (y != std::vector<float>(y.size(), 2.0f)) return "a wrong sum";
                  }
                  return failure("stream", tr_stream_destroy(stream));
                },
                60),
            "");
}

// All ranks are killed, at any moment of their lives, again and again.
TEST(Bugs, H31_CrashLoopsLeaveNothing) {
  const PrivateDirs dirs;
  if (!dirs.are_private()) GTEST_SKIP() << "needs root: /tmp and /dev/shm of its own";
  std::mt19937 random(test_seed());
  for (int round = 0; round < 20; ++round) {
    const long moments_us[3] = {static_cast<long>(random() % 20'000),
                                static_cast<long>(random() % 20'000),
                                static_cast<long>(random() % 20'000)};
    tr_unique_id_t id;
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 3; ++rank) {
      pids.push_back(::fork());
      if (pids.back() != 0) continue;
      die_after_us(moments_us[rank]);
      if (rank == 0) {
        if (tr_get_unique_id(&id) != TR_SUCCESS) ::_exit(1);
        for (int i = 0; i < 2; ++i) (void)!::write(ends[1], &id, sizeof id);
      } else {
        (void)!::read(ends[0], &id, sizeof id);
      }
      tr_comm_t comm = nullptr;
      if (tr_comm_init_rank(&comm, 3, id, rank) == TR_SUCCESS) {
        float x = 1, y;
        for (int i = 0; i < 50; ++i)
          (void)tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr);
        (void)tr_comm_destroy(comm);
      }
      for (;;) ::pause();
    }
    ::close(ends[0]);
    ::close(ends[1]);
    for (const pid_t pid : pids) {
      int status = 0;
      EXPECT_EQ(::waitpid(pid, &status, 0), pid);
      EXPECT_TRUE(WIFSIGNALED(status)) << "status " << status;
    }
    EXPECT_EQ(dirs.left_behind(), std::set<std::string>{}) << "round " << round;
  }
}

}  // namespace
}  // namespace treering::test
