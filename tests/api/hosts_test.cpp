// Ranks on several hosts, as far as algorithms see it (TR_TEST_HOSTS): every operation by what the
// library chooses, splits, and what is refused with a reason.
#include <cstdlib>
#include <gtest/gtest.h>
#include <vector>

#include "support/ranks.hpp"

namespace treering::test {
namespace {

#define RETURN_IF_FAILED(call)                                                      \
  do {                                                                              \
    if (const tr_result_t r_ = (call); r_ != TR_SUCCESS) return failure(#call, r_); \
  } while (0)

class SeveralHosts : public testing::TestWithParam<Mode> {
 protected:
  ~SeveralHosts() override { ::unsetenv("TR_TEST_HOSTS"); }
  std::string run(const char* hosts, int n, const RankBody& body) {
    ::setenv("TR_TEST_HOSTS", hosts, 1);
    return run_ranks(GetParam(), n, body, 120);
  }
};

using Words = std::vector<std::int64_t>;

// Element i of rank r's vector; sums over ranks are exact.
std::int64_t value(int r, std::size_t i) { return static_cast<std::int64_t>(i) * 10 + r + 1; }
Words vector_of(int r, std::size_t elems) {
  Words v(elems);
  for (std::size_t i = 0; i < elems; ++i) v[i] = value(r, i);
  return v;
}

// Every operation that has parts or a vector of `elems`, against the definition.
std::string every_operation(tr_comm_t comm, int rank, int n, std::size_t elems) {
  const auto ranks = static_cast<std::size_t>(n);
  const Words mine = vector_of(rank, elems), all = vector_of(rank, elems * ranks);
  Words out(elems * ranks, -1), want(elems * ranks, -1);
  const auto checked = [&](const char* what) {
    const bool equal = out == want;
    std::fill(out.begin(), out.end(), -1);
    std::fill(want.begin(), want.end(), -1);
    return equal ? std::string() : std::string(what) + " of " + std::to_string(elems);
  };
  const int root = n - 1;
  const auto sum = [&](std::size_t i, int count) {
    std::int64_t total = 0;
    for (int r = 0; r < count; ++r) total += value(r, i);
    return total;
  };
  std::string wrong;

  RETURN_IF_FAILED(tr_all_reduce(mine.data(), out.data(), elems, TR_INT64, TR_SUM, comm, nullptr));
  for (std::size_t i = 0; i < elems; ++i) want[i] = sum(i, n);
  if (!(wrong = checked("all_reduce")).empty()) return wrong;

  RETURN_IF_FAILED(
      tr_reduce(mine.data(), out.data(), elems, TR_INT64, TR_SUM, root, comm, nullptr));
  for (std::size_t i = 0; i < elems && rank == root; ++i) want[i] = sum(i, n);
  if (!(wrong = checked("reduce")).empty()) return wrong;

  RETURN_IF_FAILED(tr_broadcast(mine.data(), out.data(), elems, TR_INT64, root, comm, nullptr));
  for (std::size_t i = 0; i < elems; ++i) want[i] = value(root, i);
  if (!(wrong = checked("broadcast")).empty()) return wrong;

  RETURN_IF_FAILED(tr_scan(mine.data(), out.data(), elems, TR_INT64, TR_SUM, comm, nullptr));
  for (std::size_t i = 0; i < elems; ++i) want[i] = sum(i, rank + 1);
  if (!(wrong = checked("scan")).empty()) return wrong;

  RETURN_IF_FAILED(tr_all_gather(mine.data(), out.data(), elems, TR_INT64, comm, nullptr));
  for (std::size_t i = 0; i < want.size(); ++i)
    want[i] = value(static_cast<int>(i / elems), i % elems);
  if (!(wrong = checked("all_gather")).empty()) return wrong;

  RETURN_IF_FAILED(
      tr_reduce_scatter(all.data(), out.data(), elems, TR_INT64, TR_SUM, comm, nullptr));
  for (std::size_t i = 0; i < elems; ++i)
    want[i] = sum(static_cast<std::size_t>(rank) * elems + i, n);
  if (!(wrong = checked("reduce_scatter")).empty()) return wrong;

  RETURN_IF_FAILED(tr_gather(mine.data(), out.data(), elems, TR_INT64, root, comm, nullptr));
  for (std::size_t i = 0; i < want.size() && rank == root; ++i)
    want[i] = value(static_cast<int>(i / elems), i % elems);
  if (!(wrong = checked("gather")).empty()) return wrong;

  RETURN_IF_FAILED(tr_scatter(all.data(), out.data(), elems, TR_INT64, root, comm, nullptr));
  for (std::size_t i = 0; i < elems; ++i)
    want[i] = value(root, static_cast<std::size_t>(rank) * elems + i);
  if (!(wrong = checked("scatter")).empty()) return wrong;

  RETURN_IF_FAILED(tr_all_to_all(all.data(), out.data(), elems, TR_INT64, comm, nullptr));
  for (std::size_t i = 0; i < want.size(); ++i) {
    want[i] =
        value(static_cast<int>(i / elems), static_cast<std::size_t>(rank) * elems + i % elems);
  }
  if (!(wrong = checked("all_to_all")).empty()) return wrong;
  RETURN_IF_FAILED(tr_barrier(comm, nullptr));
  return {};
}

TEST_P(SeveralHosts, EveryOperationByWhatIsChosen) {
  const auto body = [](tr_comm_t comm, int rank, int n) -> std::string {
    for (const int ordered : {0, 1}) {
      RETURN_IF_FAILED(tr_comm_set_option(comm, TR_OPT_ORDERED, ordered));
      for (const std::size_t elems : {std::size_t{1}, std::size_t{1000}, std::size_t{70'001}}) {
        const std::string wrong = every_operation(comm, rank, n, elems);
        if (!wrong.empty()) return wrong + (ordered == 1 ? ", ordered" : "");
      }
    }
    return {};
  };
  EXPECT_EQ(run("2x2", 4, body), "");
  EXPECT_EQ(run("0,1,1,0,2", 5, body), "");
  EXPECT_EQ(run("3x1", 3, body), "");
}

TEST_P(SeveralHosts, ExplainSaysWhichAndWhatIsChosen) {
  EXPECT_EQ(run("0,1,0,1", 4,
                [](tr_comm_t comm, int, int) -> std::string {
                  const char* text = nullptr;
                  RETURN_IF_FAILED(tr_comm_explain(comm, &text));
                  for (const char* words :
                       {"hosts: 0,1,0,1\n", "two_level_doubling (several hosts, small",
                        "two_level (several hosts, large"}) {
                    if (std::string(text).find(words) == std::string::npos)
                      return std::string(words) + " is not in:\n" + text;
                  }
                  return {};
                }),
            "");
}

TEST_P(SeveralHosts, WhatNeedsOneHostCannotBeForced) {
  EXPECT_EQ(run("2x2", 4,
                [](tr_comm_t comm, int, int) -> std::string {
                  if (tr_comm_set_algorithm(comm, "all_reduce", "two_shot") != TR_INVALID_ARGUMENT)
                    return "two_shot was taken";
                  const std::string said = tr_get_last_error();
                  const char* reason = "one-to-many links, which reach the ranks of one host only";
                  if (said.find(reason) == std::string::npos) return said;
                  RETURN_IF_FAILED(tr_comm_set_algorithm(comm, "all_reduce", "two_level_tree"));
                  std::int64_t one = 1;
                  RETURN_IF_FAILED(tr_all_reduce(&one, &one, 1, TR_INT64, TR_SUM, comm, nullptr));
                  return one == 4 ? "" : std::to_string(one);
                }),
            "");
}

// A split's ranks are where they were: even ranks are on one host here, and odd ones on two.
TEST_P(SeveralHosts, SplitsKnowTheirHosts) {
  EXPECT_EQ(run("0,1,0,2,0", 5,
                [](tr_comm_t comm, int rank, int) -> std::string {
                  tr_comm_t half = nullptr;
                  RETURN_IF_FAILED(tr_comm_split(comm, rank % 2, 0, &half));
                  const char* text = nullptr;
                  RETURN_IF_FAILED(tr_comm_explain(half, &text));
                  const bool says = std::string(text).find("hosts: 2x1\n") != std::string::npos;
                  if (says != (rank % 2 == 1)) return text;
                  int n = 0, r = 0;
                  RETURN_IF_FAILED(tr_comm_size(half, &n));
                  RETURN_IF_FAILED(tr_comm_rank(half, &r));
                  const std::string wrong = every_operation(half, r, n, 500);
                  RETURN_IF_FAILED(tr_comm_destroy(half));
                  return wrong;
                }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Modes, SeveralHosts, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& mode) { return std::string(mode_name(mode.param)); });

// A map that is none, or of another number of ranks, is an error that names the variable.
TEST(Hosts, OfAnotherNumberOfRanksAreRefused) {
  tr_comm_t comm = nullptr;
  ::setenv("TR_TEST_HOSTS", "2x2", 1);
  EXPECT_EQ(tr_comm_init_env(&comm), TR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tr_get_last_error())
                .find("TR_TEST_HOSTS=2x2 is about 4 ranks, the communicator has 1"),
            std::string::npos)
      << tr_get_last_error();
  ::setenv("TR_TEST_HOSTS", "2x", 1);
  EXPECT_EQ(tr_comm_init_env(&comm), TR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tr_get_last_error()).find("TR_TEST_HOSTS: hosts \"2x\": "),
            std::string::npos)
      << tr_get_last_error();
  ::unsetenv("TR_TEST_HOSTS");
}

}  // namespace
}  // namespace treering::test
