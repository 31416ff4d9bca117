// Reports from users of other libraries about calls that hang or go wrong in silence, each by its
// number in the list that this library is held to.
#include <chrono>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.hpp"

namespace treering::test {
namespace {

constexpr int kLimitS = 60;

// Nothing if `result` is `code` and the error's text has all of `words`.
std::string check_error(tr_result_t result, tr_result_t code,
                        const std::vector<std::string>& words) {
  const std::string text = tr_get_last_error();
  if (result != code)
    return std::string("expected ") + tr_result_string(code) + ", got " + tr_result_string(result) +
           ": " + text;
  for (const std::string& w : words) {
    if (text.find(w) == std::string::npos) return "\"" + w + "\" is missing in: " + text;
  }
  return {};
}

class Bugs : public testing::TestWithParam<Mode> {
 protected:
  void expect_fine(int n, const RankBody& body) {
    EXPECT_EQ(run_ranks(GetParam(), n, body, kLimitS), "");
  }
};

// Different counts: here a hang, there a wrong tail and no word. The error is the same on all
// ranks, and the rank whose zero elements need no message gets it, too.
TEST_P(Bugs, H08_DifferentCountsAreAnErrorOnEveryRank) {
  struct Counts {
    std::uint64_t all, odd;
  };
  for (const Counts c : {Counts{1000, 998}, {100, 8000}, {50'000, 49'999}, {7, 0}}) {
    expect_fine(3, [c](tr_comm_t comm, int rank, int) -> std::string {
      const std::uint64_t count = rank == 1 ? c.odd : c.all;
      constexpr std::size_t kGuard = 64;
      std::vector<float> in(count, 1.0f), out(count + kGuard, -7.0f);
      tr_result_t r =
          tr_all_reduce(in.data(), out.data(), count, TR_FLOAT32, TR_SUM, comm, nullptr);
      if (count == 0) {
        if (r != TR_SUCCESS) return failure("tr_all_reduce of nothing", r);
        r = tr_barrier(comm, nullptr);
      }
      for (std::size_t i = count; i < out.size(); ++i)
        if (out[i] != -7.0f) return "wrote past the buffer";
      return check_error(r, TR_MISMATCH,
                         {"operation 0", "rank " + std::to_string(rank) + ": all_reduce of " +
                                             std::to_string(count) + " float32, sum"});
    });
  }
}

// Two communicators used in opposite order: a deadline, and both calls in its text.
TEST_P(Bugs, H14_TwoCommunicatorsInOppositeOrder) {
  expect_fine(2, [](tr_comm_t a, int rank, int) -> std::string {
    tr_comm_t b = nullptr;
    if (const tr_result_t r = tr_comm_split(a, 0, rank, &b); r != TR_SUCCESS)
      return failure("tr_comm_split", r);
    const tr_comm_t first = rank == 0 ? a : b;
    float x = 1;
    // Rank 0 gives up first, so that it sees rank 1 wait.
    (void)tr_comm_set_option(first, TR_OPT_TIMEOUT_MS, rank == 0 ? 2000 : 30'000);
    tr_result_t r = tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, first, nullptr);
    std::string wrong;
    if (rank == 0) {
      wrong = check_error(r, TR_TIMEOUT,
                          {"operation 0 (all_reduce of 1 float32, sum)", "rank 1 has not called it",
                           "it waits in another communicator", "operation 0, all_reduce of 1"});
    } else if (r == TR_SUCCESS) {
      wrong = "it succeeded";
    }
    // What rank 0 leaves here ends rank 1's wait.
    r = tr_comm_destroy(b);
    return wrong.empty() ? failure("tr_comm_destroy", r) : wrong;
  });
}

// Both send first: fine while links can hold it; beyond, an error that says what is missing.
TEST_P(Bugs, H15_BothSendFirst) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{4} << 20}) {
    expect_fine(2, [bytes](tr_comm_t comm, int rank, int) -> std::string {
      (void)tr_comm_set_option(comm, TR_OPT_TIMEOUT_MS, bytes <= 1000 ? 30'000 : 1500);
      std::vector<char> out(bytes, static_cast<char>('a' + rank)), in(bytes);
      const tr_result_t r = tr_send(out.data(), bytes, TR_UINT8, 1 - rank, comm, nullptr);
      if (bytes > 1000) return check_error(r, TR_TIMEOUT, {"unmatched send"});
      if (r != TR_SUCCESS) return failure("tr_send", r);
      if (const tr_result_t got = tr_recv(in.data(), bytes, TR_UINT8, 1 - rank, comm, nullptr);
          got != TR_SUCCESS)
        return failure("tr_recv", got);
      return in == std::vector<char>(bytes, static_cast<char>('a' + 1 - rank)) ? "" : "wrong bytes";
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Bugs, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& mode) { return std::string(mode_name(mode.param)); });

}  // namespace
}  // namespace treering::test
