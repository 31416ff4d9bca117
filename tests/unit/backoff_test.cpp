// A wait's polls follow what ended the waits before it.
#include "engine/backoff.hpp"

#include <gtest/gtest.h>

namespace treering {
namespace {

// A wait that lasts for `pauses` failed polls.
void wait(Backoff& backoff, int pauses) {
  for (int i = 0; i < pauses; ++i) (void)backoff.pause();
  backoff.reset();
}

TEST(Spin, IsHalvedWhereAYieldEndsTheWait) {
  Spin spin(2000);
  Backoff backoff(spin);
  wait(backoff, 2001);
  EXPECT_EQ(spin.polls(), 1000);
  for (int i = 0; i < 20; ++i) wait(backoff, spin.polls() + 1);
  EXPECT_EQ(spin.polls(), 32);
}

TEST(Spin, IsDoubledAgainWhereSpinningPays) {
  Spin spin(2000);
  Backoff backoff(spin);
  for (int i = 0; i < 20; ++i) wait(backoff, spin.polls() + 1);
  wait(backoff, 10);
  EXPECT_EQ(spin.polls(), 64);
  for (int i = 0; i < 20; ++i) wait(backoff, 10);
  EXPECT_EQ(spin.polls(), 2000);
}

TEST(Spin, LearnsNothingFromLongWaitsAndFromNone) {
  Spin spin(2000);
  Backoff backoff(spin);
  wait(backoff, 2000 + 5);
  wait(backoff, 0);
  EXPECT_EQ(spin.polls(), 2000);
}

TEST(Spin, StaysAtZeroWhereRanksOutnumberCores) {
  Spin spin(0);
  Backoff backoff(spin);
  wait(backoff, 1);
  wait(backoff, 3);
  EXPECT_EQ(spin.polls(), 0);
}

TEST(Backoff, YieldsAtOnceWhereSpinningIsInVain) {
  Spin spin(2000);
  Backoff backoff(spin);
  int asked = 0;
  for (int i = 0; i < 21; ++i) {
    EXPECT_EQ(backoff.waited(), Backoff::Clock::duration::zero());
    (void)backoff.pause([&] { return ++asked > 0; });
  }
  EXPECT_EQ(asked, 1);
  EXPECT_GT(backoff.waited(), Backoff::Clock::duration::zero());  // it has yielded
}

TEST(Backoff, AsksOnceInAWaitAndSpinsOnWhereItHelps) {
  Spin spin(40);
  Backoff backoff(spin);
  int asked = 0;
  const auto ask = [&] {
    ++asked;
    return false;
  };
  for (int i = 0; i < 40; ++i) (void)backoff.pause(ask);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(backoff.waited(), Backoff::Clock::duration::zero());
  backoff.reset();
  (void)backoff.pause(ask);
  EXPECT_EQ(asked, 2);
}

TEST(Backoff, ReportsASlowWaitOnlyAfterSpinning) {
  Spin spin(50);
  Backoff backoff(spin);
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(backoff.pause());
  EXPECT_EQ(backoff.waited(), Backoff::Clock::duration::zero());
  bool slow = false;
  for (int i = 0; i < 2'000'000 && !slow; ++i) slow = backoff.pause();
  EXPECT_TRUE(slow);
  EXPECT_GE(backoff.waited(), std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace treering
