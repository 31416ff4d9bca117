// Shuffled schedules: other orders, the same results; a broken kernel shows.
#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "control.hpp"
#include "support.hpp"
#include "traffic.cuh"

namespace {

using namespace traffic;

class Seeds : public testing::Test {
 protected:
  void TearDown() override { cudasim::set_seed(0); }
  // The seeds under which the kernel went wrong.
  template <Protocol protocol, Bug bug>
  std::set<int> wrong_seeds(int count) {
    std::set<int> seeds;
    for (int seed = 1; seed <= count; ++seed) {
      cudasim::set_seed(static_cast<std::uint64_t>(seed));
      const int wrong = run<protocol, bug>(60);
      EXPECT_GE(wrong, 0);
      if (wrong != 0) seeds.insert(seed);
    }
    return seeds;
  }
};

TEST_F(Seeds, ProtocolsWorkInTurn) {
  EXPECT_EQ((run<Protocol::kSimple, Bug::kNone>(100)), 0);
  EXPECT_EQ((run<Protocol::kLl, Bug::kNone>(100)), 0);
  EXPECT_EQ((run<Protocol::kLl128, Bug::kNone>(100)), 0);
}
TEST_F(Seeds, ProtocolsWorkShuffled) {
  EXPECT_EQ((wrong_seeds<Protocol::kSimple, Bug::kNone>(8)), std::set<int>{});
  EXPECT_EQ((wrong_seeds<Protocol::kLl, Bug::kNone>(8)), std::set<int>{});
  EXPECT_EQ((wrong_seeds<Protocol::kLl128, Bug::kNone>(8)), std::set<int>{});
}
TEST_F(Seeds, AMissingBarrierShows) {
  EXPECT_GE((wrong_seeds<Protocol::kSimple, Bug::kNoBarrierBeforePost>(8).size()), 4u);
  EXPECT_GE((wrong_seeds<Protocol::kSimple, Bug::kNoBarrierBeforeRelease>(8).size()), 4u);
}
TEST_F(Seeds, AFlagThatIsNotCheckedShows) {
  EXPECT_GE((wrong_seeds<Protocol::kLl, Bug::kOneFlagOfTwo>(8).size()), 4u);
}

// Each thread takes a ticket: the tickets are the order in which they ran.
__global__ void take_tickets(std::uint64_t* next, std::uint64_t* mine) {
  mine[thread_id()] = fetch_add(next, 1);
}

TEST_F(Seeds, GiveDifferentOrders) {
  std::set<std::vector<std::uint64_t>> orders;
  DeviceArray<std::uint64_t> next(1), mine(128);
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    cudasim::set_seed(seed);
    next.fill(0);
    ASSERT_EQ(launch(take_tickets, 1, 128, 0, nullptr, next.get(), mine.get()), cudaSuccess);
    orders.insert(mine.to_host());
  }
  EXPECT_EQ(orders.size(), 4u);
}

}  // namespace
