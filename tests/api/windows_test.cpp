// Operations that only move, in registered memory of the host.
#include <gtest/gtest.h>

#include "support/window_moves.hpp"

namespace treering::test {
namespace {

std::string move_in_windows(tr_comm_t comm, int rank, int size) {
  const std::uint64_t counts[] = {0, 1, 13, 4097, 100'003};
  const std::size_t bytes = WindowMoves::needed(100'003, size);
  void *a = nullptr, *b = nullptr;
  tr_window_t window_a = nullptr, window_b = nullptr;
  // Windows of different sizes, buffers at different places in them: ranks tell each other where.
  const std::size_t shift = static_cast<std::size_t>(rank) * 24;
  for (const tr_result_t r : {tr_mem_alloc(&a, bytes + shift), tr_mem_alloc(&b, bytes + shift),
                              tr_comm_register(comm, a, bytes + shift, &window_a),
                              tr_comm_register(comm, b, bytes + shift, &window_b)}) {
    if (r != TR_SUCCESS) return failure("set-up", r);
  }
  for (const char* op : {"broadcast", "gather", "scatter", "all_gather", "all_to_all"}) {
    if (const tr_result_t r = tr_comm_set_algorithm(comm, op, "window"); r != TR_SUCCESS)
      return failure(op, r);
  }
  WindowMoves moves(comm, rank, size, static_cast<std::uint8_t*>(a) + shift,
                    static_cast<std::uint8_t*>(b) + shift);
  for (const std::uint64_t count : counts) {
    if (std::string wrong = moves.run(count); !wrong.empty()) return wrong;
  }
  std::uint8_t byte = 0;
  if (tr_broadcast(&byte, &byte, 1, TR_UINT8, 0, comm, nullptr) != TR_INVALID_ARGUMENT)
    return "the window algorithm ran on memory that is not registered";
  return {};
}

class Windows : public testing::TestWithParam<Mode> {};

TEST_P(Windows, MovesHaveEveryByteInItsPlace) {
  for (const int n : {2, 3, 4}) EXPECT_EQ(run_ranks(GetParam(), n, move_in_windows, 60), "") << n;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Windows, testing::Values(Mode::kProcesses, Mode::kThreads),
                         [](const auto& p) { return std::string(mode_name(p.param)); });

}  // namespace
}  // namespace treering::test
