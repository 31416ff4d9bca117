// Which rank leaves a crowded core, and when; on this machine's real cores, with boards that say
// where the other ranks are.
#include "comm/placement.hpp"

#include <gtest/gtest.h>
#include <memory>
#include <sched.h>
#include <vector>

namespace treering {
namespace {

constexpr int kWaits = 2000;  // more than between two looks

// Threads that may use two cores, a and b.
class PlacementTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    if (CPU_COUNT(&before_) < 2) GTEST_SKIP() << "one core: nowhere to go";
    for (int core = 0; b_ < 0; ++core) {
      if (CPU_ISSET(core, &before_)) (a_ < 0 ? a_ : b_) = core;
    }
    CPU_ZERO(&both_);
    CPU_SET(a_, &both_);
    CPU_SET(b_, &both_);
  }
  void TearDown() override { sched_setaffinity(0, sizeof before_, &before_); }

  // Does rank `own` end on `expected`, from core a, with the others on `others`, by rank? The
  // kernel may move this thread as well, but not every time.
  bool ends_on(int expected, int own, const std::vector<int>& others, int runnable) {
    for (int attempt = 0; attempt < 10; ++attempt) {
      if (core_after(own, others, runnable) == expected) return true;
    }
    return false;
  }

  cpu_set_t before_, both_;
  int a_ = -1, b_ = -1;

 private:
  int core_after(int own, const std::vector<int>& others, int runnable) {
    cpu_set_t only_a;
    CPU_ZERO(&only_a);
    CPU_SET(a_, &only_a);
    EXPECT_EQ(sched_setaffinity(0, sizeof only_a, &only_a), 0);
    EXPECT_EQ(sched_setaffinity(0, sizeof both_, &both_), 0);

    std::vector<std::unique_ptr<Board>> boards;
    std::vector<Board*> pointers;
    for (std::size_t r = 0, other = 0; r <= others.size(); ++r) {
      boards.push_back(std::make_unique<Board>());
      pointers.push_back(boards.back().get());
      if (static_cast<int>(r) != own) boards.back()->core = others[other++] + 1;
    }
    static int runnable_now;
    runnable_now = runnable;
    Placement placement(pointers, own, [] { return runnable_now; });
    const Board& board = *pointers[static_cast<std::size_t>(own)];
    for (int i = 0; i < kWaits && board.core != b_ + 1; ++i) placement.update();
    EXPECT_TRUE(placement.shares_core(own));
    cpu_set_t after;
    EXPECT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&after, &both_));
    return board.core - 1;
  }
};

TEST_F(PlacementTest, TheLastOfThreeLeavesForTheCoreOfOne) {
  EXPECT_TRUE(ends_on(b_, 3, {a_, b_, a_}, 4));
}
TEST_F(PlacementTest, TheFirstOfThreeStays) { EXPECT_TRUE(ends_on(a_, 0, {a_, b_, a_}, 4)); }
TEST_F(PlacementTest, TwoAndTwoStay) { EXPECT_TRUE(ends_on(a_, 3, {a_, b_, b_}, 4)); }
TEST_F(PlacementTest, NobodyMovesWhileOthersRun) { EXPECT_TRUE(ends_on(a_, 3, {a_, b_, a_}, 5)); }
TEST_F(PlacementTest, NobodyMovesWhereThatIsUnknown) {
  EXPECT_TRUE(ends_on(a_, 3, {a_, b_, a_}, -1));
}
TEST_F(PlacementTest, TheSecondOfTwoLeavesForAnIdleCore) { EXPECT_TRUE(ends_on(b_, 1, {a_}, 2)); }
TEST_F(PlacementTest, TheSecondOfTwoStaysWhileOthersRun) { EXPECT_TRUE(ends_on(a_, 1, {a_}, 3)); }

TEST(Placement, SharesACoreWithThoseOnIt) {
  Board here, there, nowhere;
  const int core = sched_getcpu();
  cpu_set_t before, set;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
  Board own;
  Placement placement({&own, &here, &there, &nowhere}, 0);
  here.core = core + 1;
  there.core = core + 2;
  nowhere.core = 0;
  placement.update();
  EXPECT_TRUE(placement.shares_core(1));
  EXPECT_FALSE(placement.shares_core(2));
  EXPECT_FALSE(placement.shares_core(3));
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Placement, CountsThisThreadAmongTheRunnable) { EXPECT_GE(Placement::count_runnable(), 1); }

}  // namespace
}  // namespace treering
