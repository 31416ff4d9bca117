// What a program may do to itself while the library runs in it: exceptions, signals, forks, exits,
// limits of its own. Each ends well or with the right words.
#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "support/ranks.hpp"

namespace treering::test {
namespace {

class Program : public testing::TestWithParam<Mode> {
 protected:
  std::string run(int n, const RankBody& body) { return run_ranks(GetParam(), n, body, 60); }
};

enum class Throws { kNothing, kException, kNumber };

// An operator that adds, but on the rank whose `user` says so throws at the thousandth element.
void add_or_throw(void* acc, const void* in, std::size_t n, tr_type_t, void* user) {
  switch (*static_cast<const Throws*>(user)) {
    case Throws::kNothing:
      break;
    case Throws::kException:
      throw std::runtime_error("a bad number");
    case Throws::kNumber:
      throw 42;
  }
  for (std::size_t i = 0; i < n; ++i)
    static_cast<float*>(acc)[i] += static_cast<const float*>(in)[i];
}

// The call fails on every rank, with the words of the exception; the thread can go on.
TEST_P(Program, OperatorThatThrows) {
  for (const Throws what : {Throws::kException, Throws::kNumber}) {
    for (const bool on_stream : {false, true}) {
      EXPECT_EQ(
          run(3,
              [&](tr_comm_t comm, int rank, int) -> std::string {
                // Every rank folds something in a ring.
                if (tr_comm_set_algorithm(comm, "all_reduce", "ring") != TR_SUCCESS)
                  return tr_get_last_error();
                Throws mine = rank == 1 ? what : Throws::kNothing;
                tr_op_t op = 0;
                tr_stream_t stream = nullptr;
                if (tr_op_create(&op, add_or_throw, 1, &mine) != TR_SUCCESS)
                  return tr_get_last_error();
                if (on_stream && tr_stream_create(&stream) != TR_SUCCESS)
                  return tr_get_last_error();
                std::vector<float> x(30'000, 1.0f), y(30'000);
                tr_result_t r =
                    tr_all_reduce(x.data(), y.data(), x.size(), TR_FLOAT32, op, comm, stream);
                if (on_stream && r == TR_SUCCESS) r = tr_stream_synchronize(stream);
                const std::string text = tr_get_last_error();
                if (stream != nullptr) (void)tr_stream_destroy(stream);
                (void)tr_op_destroy(op);
                if (r != TR_SYSTEM_ERROR || text.find("threw an exception") == std::string::npos ||
                    (what == Throws::kException &&
                     text.find("a bad number") == std::string::npos) ||
                    (rank != 1 && text.find("rank 1") == std::string::npos))
                  return std::string(tr_result_string(r)) + ": " + text;
                // The same thread, another communicator.
                tr_comm_t own = nullptr;
                float one = 1, sum = 0;
                if (tr_comm_init_all(&own, 1) != TR_SUCCESS ||
                    tr_all_reduce(&one, &sum, 1, TR_FLOAT32, TR_SUM, own, nullptr) != TR_SUCCESS ||
                    tr_comm_destroy(own) != TR_SUCCESS || sum != 1)
                  return std::string("after it: ") + tr_get_last_error();
                return {};
              }),
          "")
          << (on_stream ? "on a stream" : "blocking");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Program, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& mode) { return std::string(mode_name(mode.param)); });

// A signal every 300 us, without SA_RESTART: every system call of a wait is interrupted, again and
// again, and nothing is lost.
TEST(Signals, InterruptEveryWait) {
  EXPECT_EQ(
      run_ranks(
          Mode::kProcesses, 3,
          [](tr_comm_t comm, int rank, int size) -> std::string {
            static std::atomic<int> signals;
            struct sigaction action {};
            action.sa_handler = [](int) { signals.fetch_add(1); };
            ::sigaction(SIGALRM, &action, nullptr);
            const itimerval often{{0, 300}, {0, 300}};
            ::setitimer(ITIMER_REAL, &often, nullptr);
            std::string wrong;
            void* block = nullptr;
            if (tr_mem_alloc(&block, 1 << 16) != TR_SUCCESS) wrong = tr_get_last_error();
            for (int i = 0; i < 15 && wrong.empty(); ++i) {
              tr_comm_t child = nullptr;
              tr_window_t window = nullptr;
              tr_stream_t stream = nullptr;
              float x = static_cast<float>(rank), sum = 0;
              if (rank == i % size) ::usleep(20'000);  // or as much of it as there is
              if (tr_comm_split(comm, 0, rank, &child) != TR_SUCCESS ||
                  tr_comm_register(child, block, 1 << 16, &window) != TR_SUCCESS ||
                  tr_stream_create(&stream) != TR_SUCCESS ||
                  tr_all_reduce(&x, &sum, 1, TR_FLOAT32, TR_SUM, child, stream) != TR_SUCCESS ||
                  tr_stream_synchronize(stream) != TR_SUCCESS ||
                  tr_barrier(child, nullptr) != TR_SUCCESS ||
                  tr_stream_destroy(stream) != TR_SUCCESS ||
                  tr_comm_deregister(child, window) != TR_SUCCESS ||
                  tr_comm_destroy(child) != TR_SUCCESS) {
                wrong = tr_get_last_error();
              } else if (sum != 3) {
                wrong = "a wrong sum";
              }
            }
            const itimerval never{};
            ::setitimer(ITIMER_REAL, &never, nullptr);
            if (block != nullptr) (void)tr_mem_free(block);
            if (wrong.empty() && signals.load() < 50)
              wrong = "only " + std::to_string(signals.load()) + " signals came";
            return wrong;
          },
          60),
      "");
}

// And while the communicator forms, the unique id's store included.
TEST(Signals, InterruptInit) {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, &before);
  const itimerval often{{0, 300}, {0, 300}}, never{};
  for (int i = 0; i < 10; ++i) {
    ::setitimer(ITIMER_REAL, &often, nullptr);
    tr_comm_t comms[4];
    const tr_result_t made = tr_comm_init_all(comms, 4);
    ::setitimer(ITIMER_REAL, &never, nullptr);
    ASSERT_EQ(made, TR_SUCCESS) << tr_get_last_error();
    for (tr_comm_t c : comms) ASSERT_EQ(tr_comm_destroy(c), TR_SUCCESS) << tr_get_last_error();
  }
  ::sigaction(SIGALRM, &before, nullptr);
}

// A program that ends, by exit() or from main, with calls of its own still under way.
TEST(Exit, WithoutFinalize) {
  for (const bool with_call : {false, true}) {
    EXPECT_EQ(run_ranks(
                  Mode::kProcesses, 3,
                  [with_call](tr_comm_t comm, int rank, int) -> std::string {
                    static float x[40'000], y[40'000];
                    if (const tr_result_t r = tr_barrier(comm, nullptr); r != TR_SUCCESS)
                      return failure("barrier", r);
                    if (rank == 1) {
                      tr_stream_t stream = nullptr;
                      (void)tr_stream_create(&stream);
                      if (with_call) (void)tr_recv(x, 40'000, TR_FLOAT32, 0, comm, stream);
                      std::exit(0);
                    }
                    const tr_result_t r =
                        tr_all_reduce(x, y, 40'000, TR_FLOAT32, TR_SUM, comm, nullptr);
                    const std::string text = tr_get_last_error();
                    if (r != TR_REMOTE_ERROR || text.find("rank 1") == std::string::npos)
                      return std::string(tr_result_string(r)) + ": " + text;
                    return {};
                  },
                  60),
              "");
  }
}

// Nothing runs after execve, and no descriptor of the library goes over to the new program.
TEST(Exit, ByExec) {
  EXPECT_EQ(run_ranks(
                Mode::kProcesses, 2,
                [](tr_comm_t comm, int rank, int) -> std::string {
                  float x = 1, y;
                  if (rank == 1) {
                    // Standard streams and the directory that ls itself opens; tests may run
                    // with some more, but none of ours: memory files, sockets, pidfds.
                    ::execl("/bin/sh", "sh", "-c",
                            "ls -l /proc/self/fd | grep -v ' [012] -> ' | grep -c -e memfd -e "
                            "pidfd -e socket "
                            ">/dev/null && exit 9; exit 0",
                            static_cast<char*>(nullptr));
                    return "cannot exec sh";
                  }
                  const tr_result_t r = tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr);
                  const std::string text = tr_get_last_error();
                  if (r != TR_REMOTE_ERROR || text.find("rank 1") == std::string::npos)
                    return std::string(tr_result_string(r)) + ": " + text;
                  return {};
                },
                60),
            "");
}

}  // namespace
}  // namespace treering::test
