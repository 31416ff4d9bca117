// Calls that can never complete: every rank gets an error that says who did what, in bounded time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "support/ranks.hpp"

namespace treering::test {
namespace {

using Clock = std::chrono::steady_clock;

// "" if `call` failed with `code`, soon, and its text holds all of `words`.
std::string expect_failure(tr_result_t result, tr_result_t code,
                           const std::vector<std::string>& words) {
  const std::string text = tr_get_last_error();
  if (result != code) return "result " + std::string(tr_result_string(result)) + ": " + text;
  for (const std::string& w : words) {
    if (text.find(w) == std::string::npos) return "\"" + w + "\" is missing in: " + text;
  }
  return {};
}

class Hang : public testing::TestWithParam<Mode> {
 protected:
  void expect_fine(int n, const RankBody& body) {
    const Clock::time_point start = Clock::now();
    EXPECT_EQ(run_ranks(GetParam(), n, body, 20), "");
    EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), 10.0);
  }
};

TEST_P(Hang, DifferentCounts) {
  for (const auto& [mine, theirs] :
       {std::pair{100u, 98u}, {100u, 8000u}, {40'000u, 50'000u}, {5u, 0u}}) {
    expect_fine(3, [&, a = mine, b = theirs](tr_comm_t comm, int rank, int) -> std::string {
      (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, 3000);
      std::vector<float> in(50'000, 1), out(50'000);
      const std::uint64_t count = rank == 1 ? b : a;
      const tr_result_t r =
          tr_all_reduce(in.data(), out.data(), count, TR_FLOAT32, TR_SUM, comm, nullptr);
      // Zero elements need no message: that rank is through, and the next call shows the
      // difference.
      if (rank == 1 && b == 0) return r == TR_SUCCESS ? "" : failure("all_reduce of nothing", r);
      return expect_failure(
          r, TR_MISMATCH,
          // A rank that has not called yet when the difference is found is left out.
          {"operation 0",
           "rank " + std::to_string(rank) + ": all_reduce of " + std::to_string(count),
           "all_reduce of " + std::to_string(rank == 1 ? a : b) + " float32, sum"});
    });
  }
}

TEST_P(Hang, DifferentTypesOperatorsRootsOperations) {
  const auto pair = [&](auto first, auto second, std::vector<std::string> words) {
    expect_fine(2, [&](tr_comm_t comm, int rank, int) {
      (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, 3000);
      return expect_failure(rank == 0 ? first(comm) : second(comm), TR_MISMATCH, words);
    });
  };
  const auto sum_of = [&](tr_type_t type, tr_op_t op) {
    return [&, type, op](tr_comm_t c) {
      float i[8] = {}, o[8];
      return tr_all_reduce(i, o, 4, type, op, c, nullptr);
    };
  };
  // A root only sends, and is through at once: the next operation shows the difference.
  const auto cast_from = [&](int root) {
    return [&, root](tr_comm_t c) {
      float i[8] = {}, o[8];
      if (const tr_result_t r = tr_broadcast(i, o, 4, TR_FLOAT32, root, c, nullptr);
          r != TR_SUCCESS)
        return r;
      return tr_all_reduce(i, o, 4, TR_FLOAT32, TR_SUM, c, nullptr);
    };
  };
  pair(sum_of(TR_FLOAT32, TR_SUM), sum_of(TR_INT32, TR_SUM), {"4 float32", "4 int32"});
  pair(sum_of(TR_FLOAT32, TR_SUM), sum_of(TR_FLOAT32, TR_MAX), {"sum", "max"});
  pair(cast_from(0), cast_from(1), {"root 0", "root 1"});
  pair(sum_of(TR_FLOAT32, TR_SUM), cast_from(0), {"all_reduce", "broadcast"});
}

// One rank never calls: the others' report names it and what it did last.
TEST_P(Hang, MissingRankIsNamed) {
  expect_fine(3, [](tr_comm_t comm, int rank, int) -> std::string {
    (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, 700);
    float x = 1, y;
    if (const tr_result_t r = tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr);
        r != TR_SUCCESS)
      return failure("first", r);
    if (rank == 2) {
      ::usleep(1'500'000);
      return {};
    }
    const tr_result_t r = tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr);
    // The first to give up fails the communicator; the other one may hear of that before its own
    // deadline.
    if (r == TR_TIMEOUT || r == TR_REMOTE_ERROR) {
      const std::string text = tr_get_last_error();
      if (r == TR_REMOTE_ERROR) return {};
      return expect_failure(
          r, TR_TIMEOUT,
          {"operation 1",
           "rank 2 has not called it (its last operation: 0, all_reduce of 1 float32"});
    }
    return failure("second", r) + " (expected a timeout)";
  });
}

TEST_P(Hang, RankThatLeftIsNamed) {
  expect_fine(3, [](tr_comm_t comm, int rank, int) -> std::string {
    float x = 1, y;
    if (rank == 1) return failure("destroy", tr_comm_destroy(comm));
    const tr_result_t r = tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr);
    return expect_failure(r, TR_REMOTE_ERROR, {"rank 1", "left"});
  });
}

// A one-to-many link without room: the reader that has left is named, not waited for.
TEST_P(Hang, ReaderThatLeftIsNamed) {
  expect_fine(3, [](tr_comm_t comm, int rank, int size) -> std::string {
    if (const tr_result_t r = tr_comm_set_algorithm(comm, "broadcast", "direct"); r != TR_SUCCESS)
      return failure("algorithm", r);
    if (rank == size - 1) return failure("destroy", tr_comm_destroy(comm));
    std::vector<float> x(1 << 20, 1.0f);
    const tr_result_t r = tr_broadcast(x.data(), x.data(), x.size(), TR_FLOAT32, 0, comm, nullptr);
    if (rank == 1 && r == TR_SUCCESS) return {};
    return expect_failure(r, TR_REMOTE_ERROR, {"rank 2", "left"});
  });
}

TEST_P(Hang, DifferentAlgorithmsAreNamed) {
  for (const std::size_t count : {std::size_t{8}, std::size_t{200'000}}) {
    expect_fine(3, [count](tr_comm_t comm, int rank, int) -> std::string {
      const char* algorithm = rank == 1 ? "ring" : "two_shot";
      if (const tr_result_t r = tr_comm_set_algorithm(comm, "all_reduce", algorithm);
          r != TR_SUCCESS)
        return failure("algorithm", r);
      std::vector<float> x(count, 1.0f);
      const tr_result_t r =
          tr_all_reduce(x.data(), x.data(), count, TR_FLOAT32, TR_SUM, comm, nullptr);
      // Whoever has called by then is listed.
      return expect_failure(r, TR_MISMATCH, {"different algorithms", "rank 1: ring", ": two_shot"});
    });
  }
}

// What the library exchanges by itself is not called a send of the user's.
TEST_P(Hang, SplitThatOneRankDoesNotCall) {
  expect_fine(3, [](tr_comm_t comm, int rank, int) -> std::string {
    (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, 700);
    if (rank == 2) {
      ::usleep(1'000'000);
      return {};
    }
    tr_comm_t child = nullptr;
    const tr_result_t r = tr_comm_split(comm, 0, 0, &child);
    if (r == TR_REMOTE_ERROR) return {};  // told by the other one
    return expect_failure(r, TR_TIMEOUT, {"tr_comm_split", "rank 2"});
  });
}

TEST_P(Hang, OperatorThatCallsTheLibrary) {
  expect_fine(2, [](tr_comm_t comm, int, int) -> std::string {
    static std::atomic<int> refusals;
    refusals = 0;
    const tr_combine_fn combine = [](void* acc, const void* in, std::size_t n, tr_type_t,
                                     void* user) {
      for (std::size_t i = 0; i < n; ++i)
        static_cast<float*>(acc)[i] += static_cast<const float*>(in)[i];
      float x = 1;
      auto* same = static_cast<tr_comm_t>(user);
      refusals += tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, same, nullptr) == TR_INVALID_USAGE;
    };
    tr_op_t op = 0;
    tr_stream_t stream = nullptr;
    if (const tr_result_t r = tr_op_create(&op, combine, 1, comm); r != TR_SUCCESS)
      return failure("op", r);
    if (const tr_result_t r = tr_stream_create(&stream); r != TR_SUCCESS)
      return failure("stream", r);
    std::vector<float> x(50'000, 1.0f);
    for (tr_stream_t where : {stream, tr_stream_t{nullptr}}) {
      std::fill(x.begin(), x.end(), 1.0f);
      if (const tr_result_t r =
              tr_all_reduce(x.data(), x.data(), x.size(), TR_FLOAT32, op, comm, where);
          r != TR_SUCCESS)
        return failure("call", r);
      if (const tr_result_t r = tr_stream_synchronize(where); r != TR_SUCCESS)
        return failure("wait", r);
      if (x != std::vector<float>(x.size(), 2.0f)) return "wrong sum";
    }
    if (refusals == 0) return "the call inside the operator was not refused";
    if (const tr_result_t r = tr_stream_destroy(stream); r != TR_SUCCESS)
      return failure("stream", r);
    return failure("op", tr_op_destroy(op));
  });
}

// A program that closes all descriptors it finds, as one that becomes a daemon does. (On rank 1:
// the thread of the store is in rank 0.)
TEST(Descriptors, ClosedByTheProgram) {
  EXPECT_EQ(run_ranks(Mode::kProcesses, 2,
                      [](tr_comm_t comm, int rank, int) -> std::string {
                        float x = 1, y;
                        if (rank == 1) {
                          for (int fd = 3; fd < 200; ++fd) ::close(fd);
                        } else {
                          ::usleep(300'000);
                        }
                        const tr_result_t r =
                            tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr);
                        // Rank 1's message was there already.
                        if (rank == 0) return {};
                        return expect_failure(r, TR_SYSTEM_ERROR, {"closed file descriptors"});
                      }),
            "");
}

TEST_P(Hang, AbortReachesEverybody) {
  expect_fine(3, [](tr_comm_t comm, int rank, int) -> std::string {
    float x = 1, y;
    if (rank == 1) {
      ::usleep(100'000);
      if (const tr_result_t r = tr_comm_abort(comm); r != TR_SUCCESS) return failure("abort", r);
      ::usleep(200'000);
      return expect_failure(tr_barrier(comm, nullptr), TR_ABORTED, {"rank 1"});
    }
    const tr_result_t r = tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr);
    const std::string wrong = expect_failure(r, TR_ABORTED, {"rank 1"});
    tr_result_t async = TR_SUCCESS;
    if (wrong.empty() &&
        (tr_comm_get_async_error(comm, &async) != TR_SUCCESS || async != TR_ABORTED))
      return "no async error";
    return wrong;
  });
}

TEST_P(Hang, UnmatchedSendAndReceive) {
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, 700);
    std::vector<char> big(4 << 20);
    // Both send first: more than links can buffer.
    const tr_result_t r = tr_send(big.data(), big.size(), TR_UINT8, 1 - rank, comm, nullptr);
    if (r == TR_REMOTE_ERROR) return {};
    return expect_failure(r, TR_TIMEOUT,
                          {"send to rank " + std::to_string(1 - rank), "unmatched send"});
  });
  expect_fine(2, [](tr_comm_t comm, int rank, int) -> std::string {
    (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, 700);
    char data[64] = {};
    if (rank == 0) return failure("send", tr_send(data, 10, TR_UINT8, 1, comm, nullptr));
    return expect_failure(tr_recv(data, 12, TR_UINT8, 0, comm, nullptr), TR_MISMATCH, {"rank 0"});
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Hang, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& mode) { return std::string(mode_name(mode.param)); });

bool g_is_forked_child = false;

// H16: a child forked after set-up is unharmed, is refused, and does not disturb its parent.
TEST(Fork, ChildIsRefusedParentGoesOn) {
  EXPECT_EQ(run_ranks(Mode::kProcesses, 2,
                      [](tr_comm_t comm, int, int) -> std::string {
                        float x = 1, y;
                        const pid_t child = ::fork();
                        if (child == 0) {
                          g_is_forked_child = true;
                          std::vector<char> work(1 << 20, 'x');
                          if (tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr) !=
                              TR_INVALID_USAGE)
                            ::_exit(1);
                          if (std::strstr(tr_get_last_error(), "forked") == nullptr) ::_exit(2);
                          ::exit(0);  // runs exit handlers too
                        }
                        int status = 0;
                        ::waitpid(child, &status, 0);
                        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                          return "child status " + std::to_string(status);
                        for (int i = 0; i < 1000; ++i) {
                          if (const tr_result_t r =
                                  tr_all_reduce(&x, &y, 1, TR_FLOAT32, TR_SUM, comm, nullptr);
                              r != TR_SUCCESS)
                            return failure("parent", r);
                        }
                        return failure("after", tr_barrier(comm, nullptr));
                      }),
            "");
}

}  // namespace

// LeakSanitizer's question: what the threads of the parent held is lost to a forked child.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {
  return g_is_forked_child ? 1 : 0;
}

}  // namespace treering::test
