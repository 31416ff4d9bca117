// fold_in and fold_out alone: what recursive doubling and halving-doubling share for sizes that are
// no power of two.
#include "algos/power_of_two.hpp"
#include "algos/replay.hpp"
#include "tests/algos/support.hpp"

namespace treering::algos {
namespace {

TEST(FoldSizes, LargestPowerOfTwo) {
  EXPECT_EQ(largest_power_of_two(1), 1);
  EXPECT_EQ(largest_power_of_two(2), 2);
  EXPECT_EQ(largest_power_of_two(3), 2);
  EXPECT_EQ(largest_power_of_two(4095), 2048);
  EXPECT_EQ(largest_power_of_two(4096), 4096);
}

// Members are numbered 0..m-1 in rank order; between them they stand for every rank once, in rank
// order.
TEST(FoldSizes, MembersStandForAllRanksInOrder) {
  for (int n = 1; n <= 300; ++n) {
    SCOPED_TRACE(n);
    int next_index = 0;
    for (int rank = 0; rank < n; ++rank) {
      const Fold fold(n, rank);
      ASSERT_LE(fold.members, n);
      ASSERT_GT(2 * fold.members, n);
      if (!fold.member()) {
        // Stood for by the member just before it.
        ASSERT_EQ(fold.partner(), rank - 1);
        ASSERT_TRUE(Fold(n, rank - 1).member());
        ASSERT_EQ(Fold(n, rank - 1).partner(), rank);
        continue;
      }
      ASSERT_EQ(fold.index(), next_index);
      ASSERT_EQ(fold.rank_of(next_index), rank);
      ++next_index;
    }
    ASSERT_EQ(next_index, largest_power_of_two(n));
  }
}

// After fold_in the member of a pair holds both inputs, in order; after fold_out its partner has
// the same.
TEST(FoldInOut, PairsFoldAndShare) {
  const int chunks = 3;
  for (int n = 2; n <= 20; ++n) {
    SCOPED_TRACE(n);
    Program program;
    program.collective = Collective::kAllReduce;
    program.chunks = chunks;
    for (int rank = 0; rank < n; ++rank) {
      TracePrims p(rank, n, 0);
      const Fold fold(n, rank);
      fold_in(p, fold, chunks);
      fold_out(p, fold, chunks);
      program.ranks.push_back(std::move(p).take());
    }
    const Result<Network> network = Network::build(program);
    ASSERT_TRUE(network.ok()) << network.status().message();
    Replay replay(network.value());
    const Status status = network.value().run(1, 1, 1, &replay);
    ASSERT_TRUE(status.ok()) << status.message();
    const int extra = n - largest_power_of_two(n);
    for (int rank = 0; rank < n; ++rank) {
      for (int c = 0; c < chunks; ++c) {
        const std::string text = replay.expressions().text(replay.out(rank, c));
        const int even = rank - rank % 2;
        EXPECT_EQ(text, rank >= 2 * extra ? "nothing"
                                          : std::to_string(even) + "+" + std::to_string(even + 1) +
                                                " of chunk " + std::to_string(c));
      }
    }
  }
}

}  // namespace
}  // namespace treering::algos
