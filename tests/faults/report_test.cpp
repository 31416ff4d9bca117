// What is said of calls that cannot end, and when: deadlines that count from the last progress, one
// report before the error, the chain of waits to its cause, calls that nobody waited in.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <mutex>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "treering/treering.hpp"

#include "support/ranks.hpp"

namespace treering::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kLimitS = 60;

std::string lacks(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& w : words) {
    if (text.find(w) == std::string::npos) return "\"" + w + "\" is missing in: " + text;
  }
  return {};
}

std::string expect_error(tr_result_t result, tr_result_t code,
                         const std::vector<std::string>& words) {
  const std::string text = tr_get_last_error();
  if (result != code)
    return std::string("expected ") + tr_result_string(code) + ", got " + tr_result_string(result) +
           ": " + text;
  return lacks(text, words);
}

// Words between ranks outside of the library, for threads and forked processes alike.
class Shared {
 public:
  Shared() {
    at_ = static_cast<std::atomic<long>*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~Shared() { ::munmap(at_, 4096); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  std::atomic<long>& operator[](int i) const { return at_[i]; }
  // Until word i is at least `value`.
  bool wait(int i, long value) const {
    const Clock::time_point end = Clock::now() + std::chrono::seconds(kLimitS / 2);
    while (at_[i].load(std::memory_order_acquire) < value) {
      if (Clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

 private:
  std::atomic<long>* at_;
};

class Report : public testing::TestWithParam<Mode> {
 protected:
  void expect_fine(int n, const RankBody& body) {
    EXPECT_EQ(run_ranks(GetParam(), n, body, kLimitS), "");
  }
};

float g_in[4096], g_out[4096];

tr_result_t sum(tr_comm_t comm, std::uint64_t count = 1) {
  std::vector<float> in(count, 1.0f), out(count);
  return tr_all_reduce(in.data(), out.data(), count, TR_FLOAT32, TR_SUM, comm, nullptr);
}

// ---- Mismatches that no link shows ----------------------------------------------------------

// Roots only send, and are through at once: both calls succeed, and nobody ever waits.
TEST_P(Report, BroadcastsFromDifferentRootsAreFoundWithoutAnotherCall) {
  for (const bool by_destroy : {false, true}) {
    Shared shared;
    expect_fine(2, [&](tr_comm_t comm, int rank, int size) -> std::string {
      float x = 1;
      const tr_result_t sent = tr_broadcast(&x, &x, 1, TR_FLOAT32, rank, comm, nullptr);
      if (sent != TR_SUCCESS) return failure("tr_broadcast", sent);
      shared[0].fetch_add(1, std::memory_order_acq_rel);
      if (!shared.wait(0, size)) return "the other rank never came";
      const std::vector<std::string> words = {"operation 0",
                                              "rank 0: broadcast of 1 float32, root 0",
                                              "rank 1: broadcast of 1 float32, root 1"};
      if (by_destroy) return expect_error(tr_comm_destroy(comm), TR_MISMATCH, words);
      tr_result_t error = TR_SUCCESS;
      if (const tr_result_t r = tr_comm_get_async_error(comm, &error); r != TR_SUCCESS)
        return failure("tr_comm_get_async_error", r);
      if (error != TR_MISMATCH) return std::string("async error: ") + tr_result_string(error);
      return expect_error(sum(comm), TR_MISMATCH, words);
    });
  }
}

// One call left out among many equal ones: what follows is one too early.
TEST_P(Report, SkippedCallIsNamedOnEveryRank) {
  expect_fine(3, [](tr_comm_t comm, int rank, int) -> std::string {
    for (int i = 0; i < 40; ++i) {
      if (const tr_result_t r = sum(comm); r != TR_SUCCESS) return failure("sum", r);
    }
    tr_result_t r = rank == 1 ? TR_SUCCESS : sum(comm, 100);
    if (r == TR_SUCCESS) r = tr_barrier(comm, nullptr);
    return expect_error(r, TR_MISMATCH,
                        {"operation 40", "all_reduce of 100 float32, sum", "rank 1: barrier"});
  });
}

// Another count means another algorithm, and links that never meet.
TEST_P(Report, CallsWhoseLinksNeverMeet) {
  expect_fine(4, [](tr_comm_t comm, int rank, int) -> std::string {
    for (const char* name : {"ring", "two_shot"}) {
      if ((rank % 2 == 0) != (std::string(name) == "ring")) continue;
      if (const tr_result_t r = tr_comm_set_algorithm(comm, "all_reduce", name); r != TR_SUCCESS)
        return failure("tr_comm_set_algorithm", r);
    }
    return expect_error(sum(comm, rank % 2 == 0 ? 1000 : 999), TR_MISMATCH,
                        {"operation 0", "rank " + std::to_string(rank), "1000", "999"});
  });
}

// ---- Deadlines ------------------------------------------------------------------------------

// Rank 2 waits for rank 1 all the time, and rank 1 for rank 0, which goes on slowly.
TEST_P(Report, DeadlineCountsFromTheLastProgressOfThoseItWaitsFor) {
  constexpr int kMessages = 10;
  constexpr int kPauseMs = 400, kTimeoutMs = 2500;
  for (const bool stalls : {false, true}) {
    Shared shared;
    expect_fine(3, [&](tr_comm_t comm, int rank, int) -> std::string {
      if (const tr_result_t r = tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, kTimeoutMs);
          r != TR_SUCCESS)
        return failure("tr_comm_set_option", r);
      char byte = 1;
      const Clock::time_point begin = Clock::now();
      if (rank == 2) {
        const tr_result_t r = tr_recv(&byte, 1, TR_UINT8, 1, comm, nullptr);
        const auto took = Clock::now() - begin;
        shared[0].store(1, std::memory_order_release);
        if (stalls) return r == TR_SUCCESS ? "it succeeded" : "";
        if (r != TR_SUCCESS) return failure("tr_recv", r);
        // Or the test shows nothing.
        return took > milliseconds(kTimeoutMs) ? "" : "it did not wait longer than its deadline";
      }
      for (int i = 0; i < kMessages; ++i) {
        if (rank == 0) {
          if (stalls && i == 2) return shared.wait(0, 1) ? "" : "nobody gave up";
          std::this_thread::sleep_for(milliseconds(kPauseMs));
        }
        const tr_result_t r = rank == 0 ? tr_send(&byte, 1, TR_UINT8, 1, comm, nullptr)
                                        : tr_recv(&byte, 1, TR_UINT8, 0, comm, nullptr);
        if (stalls && r != TR_SUCCESS) return "";
        if (r != TR_SUCCESS) return failure("message", r);
      }
      return rank == 0 ? "" : failure("tr_send", tr_send(&byte, 1, TR_UINT8, 2, comm, nullptr));
    });
  }
}

// The thread's deadline for its next calls, by the C++ interface too; 0 is never.
TEST_P(Report, DeadlineOfACall) {
  Shared shared;
  expect_fine(2, [&](tr_comm_t comm, int rank, int) -> std::string {
    (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, 200);
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(1000));  // five times the communicator's deadline
      if (const tr_result_t r = sum(comm); r != TR_SUCCESS) return failure("first", r);
      return shared.wait(0, 1) ? "" : "rank 0 never gave up";
    }
    {
      const tr::CallDeadline never(0, 0);
      if (const tr_result_t r = sum(comm); r != TR_SUCCESS) return failure("first", r);
    }
    (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, 0);  // never
    if (tr_set_call_deadline(300, -1) != TR_SUCCESS) return "tr_set_call_deadline";
    const tr_result_t r = sum(comm);
    const std::string wrong = expect_error(r, TR_TIMEOUT, {"operation 1", "rank 1"});
    (void)tr_set_call_deadline(-1, -1);
    shared[0].store(1, std::memory_order_release);
    return wrong;
  });
}

// A call in a stream takes along what was set when it was made.
TEST_P(Report, DeadlineOfACallInAStream) {
  Shared shared;
  expect_fine(2, [&](tr_comm_t comm, int rank, int) -> std::string {
    if (rank == 1) return shared.wait(0, 1) ? "" : "rank 0 never gave up";
    (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, 0);
    tr_stream_t stream = nullptr;
    if (const tr_result_t r = tr_stream_create(&stream); r != TR_SUCCESS)
      return failure("stream", r);
    (void)tr_set_call_deadline(300, -1);
    tr_result_t r = tr_all_reduce(g_in, g_out, 16, TR_FLOAT32, TR_SUM, comm, stream);
    (void)tr_set_call_deadline(-1, -1);
    if (r != TR_SUCCESS) return failure("tr_all_reduce", r);
    r = tr_stream_synchronize(stream);
    const std::string wrong =
        expect_error(r, TR_TIMEOUT, {"operation 0", "rank 1 has not called it"});
    shared[0].store(1, std::memory_order_release);
    (void)tr_stream_destroy(stream);
    return wrong;
  });
}

// What a process writes to descriptor 2 goes to a file meanwhile.
class StderrToFile {
 public:
  StderrToFile() {
    path_ = testing::TempDir() + "treering-stderr-" + std::to_string(::getpid());
    saved_ = ::dup(2);
    if (std::FILE* f = std::fopen(path_.c_str(), "w+")) {
      ::dup2(::fileno(f), 2);
      std::fclose(f);
    }
  }
  ~StderrToFile() { restore(); }
  std::string restore() {
    if (saved_ < 0) return "";
    ::dup2(saved_, 2);
    ::close(saved_);
    saved_ = -1;
    std::ifstream file(path_);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::filesystem::remove(path_);
    return text;
  }

 private:
  std::string path_;
  int saved_ = -1;
};

int occurrences(const std::string& text, const std::string& word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

TEST_P(Report, OneReportBeforeAnyErrorAndNoneAtZero) {
  for (const int warn_ms : {150, 0}) {
    StderrToFile log;
    expect_fine(2, [&](tr_comm_t comm, int rank, int) -> std::string {
      (void)tr_comm_set_option(comm, TR_OPT_WARN_MS, warn_ms);
      if (rank == 1) std::this_thread::sleep_for(milliseconds(900));
      return failure("sum", sum(comm));
    });
    const std::string text = log.restore();
    EXPECT_EQ(occurrences(text, "operation 0 (all_reduce of 1 float32, sum)"), warn_ms > 0) << text;
    if (warn_ms > 0) {
      EXPECT_EQ(lacks(text, {"rank 1 has not sent chunk 0 slice 0", "rank 0 waits because of it",
                             "rank 1 has not called it (its last operation: none)",
                             "arrived in operation 0: rank 0; not: rank 1"}),
                "");
    }
  }
}

// ---- The chain of waits ---------------------------------------------------------------------

TEST_P(Report, ChainToTheRankThatNeverCame) {
  Shared shared;
  expect_fine(3, [&](tr_comm_t comm, int rank, int) -> std::string {
    if (rank == 2) return shared.wait(0, 1) ? "" : "nobody gave up";
    char byte = 0;
    // Rank 0 gives up when rank 1 must have been waiting for long.
    (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, rank == 0 ? 2000 : 0);
    const tr_result_t r = tr_recv(&byte, 1, TR_UINT8, rank + 1, comm, nullptr);
    if (rank == 1) return r != TR_SUCCESS ? "" : "it succeeded";
    const std::string wrong =
        expect_error(r, TR_TIMEOUT,
                     {"rank 1 has not sent chunk 0 slice 0", "ranks 0, 1 wait because of rank 2",
                      "rank 0 waits for rank 1, rank 1 for rank 2", "unmatched receive",
                      "rank 2 waits for nothing here and has called no operation yet"});
    shared[0].store(1, std::memory_order_release);
    return wrong;
  });
}

TEST_P(Report, CircleIsNamed) {
  expect_fine(3, [](tr_comm_t comm, int rank, int size) -> std::string {
    char byte = 0;
    (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, rank == 0 ? 2000 : 0);
    const tr_result_t r = tr_recv(&byte, 1, TR_UINT8, (rank + 1) % size, comm, nullptr);
    return expect_error(r, TR_TIMEOUT,
                        {"ranks 0-2 wait for each other, in a circle",
                         "rank 0 waits for rank 1, rank 1 for rank 2, rank 2 for rank 0"});
  });
}

// Step-exact: in a ring of 3 the sum of chunk 2 ends at rank 2, so it starts at rank 0, and rank 1
// folds it first of all and sends it as its second message. Rank 1 stops in that fold.
Shared* g_shared = nullptr;
int g_hanging_rank = 1;
thread_local int t_rank = -1;

TEST_P(Report, StepAndChunkOfTheRankThatComputesForEver) {
  Shared shared;
  g_shared = &shared;
  expect_fine(3, [&](tr_comm_t comm, int rank, int) -> std::string {
    t_rank = rank;
    const tr_combine_fn hang = [](void* acc, const void* in, std::size_t n, tr_type_t, void*) {
      for (std::size_t i = 0; i < n; ++i)
        static_cast<float*>(acc)[i] += static_cast<const float*>(in)[i];
      if (t_rank == g_hanging_rank) (void)g_shared->wait(0, 1);
    };
    tr_op_t op = 0;
    if (const tr_result_t r = tr_op_create(&op, hang, 1, nullptr); r != TR_SUCCESS)
      return failure("tr_op_create", r);
    if (const tr_result_t r = tr_comm_set_algorithm(comm, "all_reduce", "ring"); r != TR_SUCCESS)
      return failure("tr_comm_set_algorithm", r);
    (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, rank == 2 ? 2000 : 0);
    std::vector<float> x(3 * 16, 1.0f);
    const tr_result_t r =
        tr_all_reduce(x.data(), x.data(), x.size(), TR_FLOAT32, op, comm, nullptr);
    if (rank != 2) return r != TR_SUCCESS ? "" : "it succeeded";
    const std::string wrong = expect_error(
        r, TR_TIMEOUT,
        {"operation 0", "by ring",
         "rank 1 has not sent chunk 2 slice 0 (message 1 of link 1->2, recv_reduce",
         "ranks 0, 2 wait because of", "rank 1 is in operation 0, all_reduce of 48 float32",
         "arrived in operation 0: ranks 0-2; not: no rank", "1->2: 64 B in 1 message"});
    shared[0].store(1, std::memory_order_release);
    (void)tr_op_destroy(op);
    return wrong;
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Report, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& mode) { return std::string(mode_name(mode.param)); });

// ---- Stopped processes ----------------------------------------------------------------------

// A rank that is stopped says nothing; its process's state does. With a longer deadline the same
// stop does no harm.
TEST(Stopped, IsNamedOrOutlived) {
  for (const bool outlives : {false, true}) {
    Shared shared;  // 0: rank 1's pid; 1: rank 0 is through
    EXPECT_EQ(run_ranks(
                  Mode::kProcesses, 2,
                  [&](tr_comm_t comm, int rank, int) -> std::string {
                    if (rank == 1) {
                      shared[0].store(::getpid(), std::memory_order_release);
                      ::raise(SIGSTOP);
                      const tr_result_t r = sum(comm);
                      return (r == TR_SUCCESS) == outlives ? "" : failure("sum", r);
                    }
                    if (!shared.wait(0, 1)) return "rank 1 never came";
                    const auto pid = static_cast<pid_t>(shared[0].load());
                    std::thread later;
                    if (outlives) {
                      later = std::thread([pid] {
                        std::this_thread::sleep_for(milliseconds(1500));
                        ::kill(pid, SIGCONT);
                      });
                    }
                    (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, outlives ? 30'000 : 700);
                    const tr_result_t r = sum(comm);
                    const std::string text = tr_get_last_error();
                    if (later.joinable()) later.join();
                    ::kill(pid, SIGCONT);
                    if (outlives) return failure("sum", r);
                    if (r != TR_TIMEOUT) return failure("sum", r) + " (expected a timeout)";
                    return lacks(text, {"rank 1 has not called it", "is stopped",
                                        "kill -CONT " + std::to_string(pid)});
                  },
                  kLimitS),
              "");
  }
}

// ---- Settings -------------------------------------------------------------------------------

TEST(Deadlines, BadValuesAreRefused) {
  tr_comm_t comm;
  ASSERT_EQ(tr_comm_init_all(&comm, 1), TR_SUCCESS);
  EXPECT_EQ(tr_set_call_deadline(-2, 0), TR_INVALID_ARGUMENT);
  EXPECT_EQ(tr_set_call_deadline(0, -5), TR_INVALID_ARGUMENT);
  EXPECT_EQ(tr_comm_set_option(comm, TR_OPT_WARN_MS, -1), TR_INVALID_ARGUMENT);
  EXPECT_EQ(lacks(tr_get_last_error(), {"0 (never)"}), "");
  EXPECT_EQ(tr_comm_save_flight(comm, "nowhere"), TR_INVALID_USAGE);
  EXPECT_EQ(lacks(tr_get_last_error(), {"TR_FLIGHT_RECORDER"}), "");
  EXPECT_EQ(tr_comm_destroy(comm), TR_SUCCESS);
}

}  // namespace
}  // namespace treering::test
