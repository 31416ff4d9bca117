// tr_comm_abort, from another thread, whatever the peers do: all that waits on this rank ends,
// soon, and the communicator can be destroyed. Errors keep their first cause.
#include <chrono>
#include <cstdio>
#include <functional>
#include <gtest/gtest.h>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/ranks.hpp"

namespace treering::test {
namespace {

using Clock = std::chrono::steady_clock;

// The promise is one second. A test must hold on a machine that does five other things at once.
constexpr double kSoonS = 1.0, kSlack = 8.0;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Wait {
  const char* name;
  std::function<tr_result_t(tr_comm_t)> call;
};

tr_result_t all_reduce(tr_comm_t comm, tr_stream_t stream) {
  static float x[50'000], y[50'000];
  return tr_all_reduce(x, y, 50'000, TR_FLOAT32, TR_SUM, comm, stream);
}

tr_result_t on_a_stream(tr_comm_t comm, bool by_event) {
  tr_stream_t stream = nullptr;
  tr_event_t event = nullptr;
  (void)tr_stream_create(&stream);
  (void)tr_event_create(&event);
  tr_result_t r = all_reduce(comm, stream);
  if (r == TR_SUCCESS) r = tr_event_record(event, stream);
  if (r == TR_SUCCESS) r = by_event ? tr_event_synchronize(event) : tr_stream_synchronize(stream);
  const std::string text = tr_get_last_error();
  const tr_result_t again = tr_stream_synchronize(stream);
  (void)tr_event_destroy(event);
  (void)tr_stream_destroy(stream);
  return by_event && r == TR_SUCCESS ? again : r;
}

const Wait kWaits[] = {
    {"a collective", [](tr_comm_t c) { return all_reduce(c, nullptr); }},
    {"a receive",
     [](tr_comm_t c) {
       float x;
       return tr_recv(&x, 1, TR_FLOAT32, 1, c, nullptr);
     }},
    {"tr_stream_synchronize", [](tr_comm_t c) { return on_a_stream(c, false); }},
    {"tr_event_synchronize", [](tr_comm_t c) { return on_a_stream(c, true); }},
    {"tr_group_end",
     [](tr_comm_t c) {
       float x = 1, y;
       (void)tr_group_start();
       (void)tr_send(&x, 1, TR_FLOAT32, 1, c, nullptr);
       (void)tr_recv(&y, 1, TR_FLOAT32, 1, c, nullptr);
       return tr_group_end();
     }},
    {"tr_comm_split",
     [](tr_comm_t c) {
       tr_comm_t child = nullptr;
       return tr_comm_split(c, 0, 0, &child);
     }},
    {"tr_comm_register",
     [](tr_comm_t c) {
       void* block = nullptr;
       tr_window_t window = nullptr;
       (void)tr_mem_alloc(&block, 4096);
       const tr_result_t r = tr_comm_register(c, block, 4096, &window);
       const std::string text = tr_get_last_error();
       (void)tr_mem_free(block);
       return r;
     }},
    {"tr_comm_shrink",
     [](tr_comm_t c) {
       tr_comm_t small = nullptr;
       return tr_comm_shrink(c, &small);
     }},
    {"tr_comm_finalize",
     [](tr_comm_t c) {
       tr_stream_t stream = nullptr;
       (void)tr_stream_create(&stream);
       (void)all_reduce(c, stream);
       (void)tr_comm_finalize(c);
       const tr_result_t r = tr_stream_synchronize(stream);
       (void)tr_stream_destroy(stream);
       return r;
     }},
};

// The peer is stopped: it does nothing at all, and holds everything.
TEST(Abort, UnblocksEveryWaitThoughThePeerIsStopped) {
  for (const Wait& wait : kWaits) {
    EXPECT_EQ(
        run_ranks(
            Mode::kProcesses, 2,
            [&wait](tr_comm_t comm, int rank, int) -> std::string {
              int peer_pid = ::getpid(), other = 0;
              // Both know the other's process; then rank 1 stops.
              int both[2];
              if (tr_all_gather(&peer_pid, both, 1, TR_INT32, comm, nullptr) != TR_SUCCESS)
                return tr_get_last_error();
              other = both[1 - rank];
              if (rank == 1) {
                ::kill(::getpid(), SIGSTOP);
                return {};
              }
              ::usleep(20'000);
              Clock::time_point aborted;
              std::thread killer([&] {
                ::usleep(150'000);
                aborted = Clock::now();
                (void)tr_comm_abort(comm);
              });
              const tr_result_t r = wait.call(comm);
              const Clock::time_point returned = Clock::now();
              killer.join();
              const double took = std::chrono::duration<double>(returned - aborted).count();
              const Clock::time_point destroying = Clock::now();
              const tr_result_t destroyed = tr_comm_destroy(comm);
              const double took_2 = seconds_since(destroying);
              ::kill(other, SIGCONT);
              std::printf("%s: %.0f ms, destroy %.0f ms\n", wait.name, took * 1e3, took_2 * 1e3);
              std::fflush(stdout);
              if (r != TR_ABORTED) return std::string("returned ") + tr_result_string(r);
              if (destroyed != TR_SUCCESS) return failure("destroy", destroyed);
              if (took > kSoonS * kSlack || took_2 > kSoonS * kSlack)
                return "took " + std::to_string(took) + " s and " + std::to_string(took_2) + " s";
              return {};
            },
            60),
        "")
        << wait.name;
  }
}

class FirstCause : public testing::TestWithParam<Mode> {};

TEST_P(FirstCause, IsKept) {
  EXPECT_EQ(run_ranks(
                GetParam(), 2,
                [](tr_comm_t comm, int rank, int) -> std::string {
                  if (rank == 1) return failure("destroy", tr_comm_destroy(comm));
                  float x = 1, y;
                  const auto call = [&] {
                    return tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr);
                  };
                  if (call() != TR_REMOTE_ERROR) return "not told that rank 1 has left";
                  const std::string cause = tr_get_last_error();
                  if (tr_comm_abort(comm) != TR_SUCCESS) return tr_get_last_error();
                  if (call() != TR_REMOTE_ERROR || cause != tr_get_last_error())
                    return cause + " became " + tr_get_last_error();
                  tr_result_t async = TR_SUCCESS;
                  (void)tr_comm_get_async_error(comm, &async);
                  if (async != TR_REMOTE_ERROR || cause != tr_get_last_error())
                    return cause + " became, as an async error, " + tr_get_last_error();
                  return {};
                },
                40),
            "");
}

TEST_P(FirstCause, AnAbortIsOneToo) {
  EXPECT_EQ(run_ranks(
                GetParam(), 3,
                [](tr_comm_t comm, int rank, int) -> std::string {
                  float x = 1, y;
                  if (rank == 2) (void)tr_comm_abort(comm);
                  for (int i = 0; i < 3; ++i) {
                    const tr_result_t r =
                        tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr);
                    if (r != TR_ABORTED ||
                        std::string(tr_get_last_error()).find("rank 2") == std::string::npos)
                      return failure("expected: aborted by rank 2", r) + "?";
                  }
                  return {};
                },
                40),
            "");
}

INSTANTIATE_TEST_SUITE_P(Modes, FirstCause, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& mode) { return std::string(mode_name(mode.param)); });

}  // namespace
}  // namespace treering::test
