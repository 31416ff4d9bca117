// The fault matrix: every fault at every moment, and 200 schedules drawn by chance. No hang, no
// crash, no wrong result; the error names the rank; nothing is left behind.
#include <cstdio>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>

#include "faults/moments.hpp"
#include "faults/private_dirs.hpp"
#include "faults/schedule.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

constexpr Fault kFaults[] = {Fault::kKill, Fault::kExit, Fault::kStopShort, Fault::kStopLong,
                             Fault::kMismatch};
constexpr Moment kMoments[] = {Moment::kInit, Moment::kIdle, Moment::kCollective, Moment::kDestroy};

class FaultMatrix : public testing::TestWithParam<Hosts> {
 protected:
  void SetUp() override {
    Schedule probe;
    probe.ranks = 3;
    probe.fault = Fault::kStopShort;
    probe.moment = Moment::kDestroy;
    probe.stop_ms = 1;
    probe.hosts = GetParam();
    const std::string wrong = run_schedule(probe);
    if (GetParam() != Hosts::kOne && wrong.find("do not share memory") != std::string::npos)
      GTEST_SKIP() << "no transport between hosts in this build: " << wrong;
    ASSERT_EQ(wrong, "");
  }
};

TEST_P(FaultMatrix, EveryFaultAtEveryMoment) {
  for (const Fault fault : kFaults) {
    for (const Moment moment : kMoments) {
      for (int field = 0; field < (fault == Fault::kMismatch ? 6 : 1); ++field) {
        Schedule s;
        s.ranks = 3;
        s.victim = 1 + field % 2;
        s.fault = fault;
        s.moment = moment;
        s.field = static_cast<Field>(field);
        s.delay_us = 2000;
        s.hosts = GetParam();
        EXPECT_EQ(run_schedule(s), "") << to_string(s);
      }
    }
  }
}

// The figures of the specification: 5 s stopped, deadlines of 10 s and 2 s.
TEST_P(FaultMatrix, StoppedForFiveSeconds) {
  for (const Fault fault : {Fault::kStopShort, Fault::kStopLong}) {
    Schedule s;
    s.ranks = 3;
    s.victim = 2;
    s.fault = fault;
    s.moment = Moment::kCollective;
    s.stop_ms = 5000;
    s.short_ms = 2000;
    s.generous_ms = 10'000;
    s.hosts = GetParam();
    EXPECT_EQ(run_schedule(s), "") << to_string(s);
  }
}

TEST_P(FaultMatrix, TwoHundredSchedules) {
  const PrivateDirs dirs;
  std::mt19937 random(test_seed());
  for (int i = 0; i < 200; ++i) {
    const Schedule s = random_schedule(random, GetParam());
    EXPECT_EQ(run_schedule(s), "") << "schedule " << i << ": " << to_string(s);
  }
  if (dirs.are_private()) {
    EXPECT_EQ(dirs.left_behind(), std::set<std::string>{});
  } else {
    std::printf("not root: /tmp and /dev/shm were not looked at\n");
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, FaultMatrix,
                         testing::Values(Hosts::kOne, Hosts::kEachItsOwn, Hosts::kTwo),
                         [](const auto& hosts) {
                           return std::string(hosts.param == Hosts::kOne          ? "shm"
                                              : hosts.param == Hosts::kEachItsOwn ? "tcp"
                                                                                  : "two_level");
                         });

}  // namespace
}  // namespace treering::test
