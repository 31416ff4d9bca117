// What is chosen where ranks are on several hosts, and why not something else.
#include <gtest/gtest.h>

#include "tuner/choice.hpp"

namespace treering {
namespace {

ChoiceInput on(const HostMap& hosts, Collective collective, std::uint64_t bytes) {
  ChoiceInput in;
  in.collective = collective;
  in.size = hosts.ranks();
  in.hosts = &hosts;
  in.bytes = bytes;
  in.link_bytes = 128 << 10;
  in.cast_bytes = 256 << 10;
  return in;
}

std::string chosen(const ChoiceInput& in) {
  const Result<Choice> c = choose(in);
  return c.ok() ? c.value().algorithm->name : c.status().message();
}

const HostMap& two_by_two() {
  static const HostMap map = HostMap::parse("2x2").value();
  return map;
}
const HostMap& one_each() {
  static const HostMap map = HostMap::parse("4x1").value();
  return map;
}
const HostMap& interleaved() {
  static const HostMap map = HostMap::parse("0,1,0,1").value();
  return map;
}

constexpr std::uint64_t kLarge = 16 << 20;

TEST(OnSeveralHosts, LevelsAreUsedWhereAHostHasSeveralRanks) {
  using C = Collective;
  EXPECT_EQ(chosen(on(two_by_two(), C::kAllReduce, 8)), "two_level_doubling");
  EXPECT_EQ(chosen(on(two_by_two(), C::kAllReduce, kLarge)), "two_level");
  EXPECT_EQ(chosen(on(one_each(), C::kAllReduce, 8)), "recursive_doubling");
  EXPECT_EQ(chosen(on(one_each(), C::kAllReduce, kLarge)), "ring");
  for (const C c : {C::kAllGather, C::kReduceScatter, C::kBroadcast, C::kReduce}) {
    for (const std::uint64_t bytes : {std::uint64_t{8}, kLarge}) {
      EXPECT_EQ(chosen(on(two_by_two(), c, bytes)), "two_level") << collective_name(c);
      EXPECT_EQ(chosen(on(interleaved(), c, bytes)), "two_level") << collective_name(c);
      EXPECT_NE(chosen(on(one_each(), c, bytes)).find_first_of("rtb"), std::string::npos);
      EXPECT_EQ(chosen(on(one_each(), c, bytes)).find("two_level"), std::string::npos);
    }
  }
}

// Whatever the call, what is chosen can run between hosts.
TEST(OnSeveralHosts, NothingThatNeedsOneHostIsChosen) {
  for (const HostMap* hosts : {&two_by_two(), &one_each(), &interleaved()}) {
    for (int c = 0; c < kNumCollectives; ++c) {
      const auto collective = static_cast<Collective>(c);
      if (collective == Collective::kSendRecv) continue;
      const bool folds = collective == Collective::kAllReduce ||
                         collective == Collective::kReduce ||
                         collective == Collective::kReduceScatter ||
                         collective == Collective::kScan || collective == Collective::kExscan;
      for (const std::uint64_t bytes : {std::uint64_t{8}, std::uint64_t{100'000}, kLarge}) {
        for (int variant = 0; variant < 16; ++variant) {
          ChoiceInput in = on(*hosts, collective, bytes);
          in.ordered = folds && (variant & 1) != 0;
          in.commutative = !folds || (variant & 2) == 0;
          in.windows = (variant & 4) != 0;
          in.in_place = (variant & 8) != 0;
          const Result<Choice> choice = choose(in);
          ASSERT_TRUE(choice.ok()) << choice.status().message();
          const algos::Algorithm& a = *choice.value().algorithm;
          EXPECT_FALSE(a.casts) << collective_name(collective) << " " << a.name;
          EXPECT_FALSE(a.windows) << collective_name(collective) << " " << a.name;
          EXPECT_TRUE(a.order_is_fixed || !in.ordered) << a.name;
          EXPECT_TRUE(algos::keeps_order(a, hosts) || in.commutative) << a.name;
        }
      }
    }
  }
}

TEST(OnSeveralHosts, RankOrderIsKeptByWhatCan) {
  ChoiceInput in = on(two_by_two(), Collective::kAllReduce, kLarge);
  in.commutative = false;
  EXPECT_EQ(chosen(in), "two_level_tree");
  in.hosts = &interleaved();
  EXPECT_EQ(chosen(in), "halving_doubling");
  in.ordered = true;
  EXPECT_EQ(chosen(in), "direct");
}

TEST(OnSeveralHosts, WhatIsForcedAndCannotBeHasAReason) {
  const auto why_not = [](const HostMap& hosts, const char* forced, bool commutative = true) {
    ChoiceInput in = on(hosts, Collective::kAllReduce, kLarge);
    in.forced = forced;
    in.windows = true;
    in.commutative = commutative;
    return chosen(in);
  };
  const std::string prefix = " was forced but cannot serve this call: ";
  EXPECT_EQ(why_not(two_by_two(), "two_shot"),
            "all_reduce algorithm \"two_shot\"" + prefix +
                "it uses one-to-many links, which reach the ranks of one host only");
  EXPECT_EQ(why_not(two_by_two(), "window"),
            "all_reduce algorithm \"window\"" + prefix +
                "it uses registered windows, which reach the ranks of one host only");
  EXPECT_EQ(why_not(interleaved(), "two_level_tree", false),
            "all_reduce algorithm \"two_level_tree\"" + prefix +
                "the operator does not commute, and the ranks of a host are not consecutive");
  const HostMap one = HostMap::one_host(4);
  EXPECT_EQ(why_not(one, "two_level"), "all_reduce algorithm \"two_level\"" + prefix +
                                           "it is for several hosts, and all ranks are on one");
  EXPECT_EQ(why_not(one_each(), "two_level"), "two_level") << "forced, it is what the ring is";
  EXPECT_EQ(why_not(two_by_two(), "ring"), "ring");
}

// Rings that share a link share its slots; a link that is too small for that is an error.
TEST(OnSeveralHosts, SlicesLeaveRoomForAllRingsOfALink) {
  const HostMap uneven = HostMap::parse("1+1+8").value();
  ChoiceInput in = on(uneven, Collective::kAllReduce, kLarge);
  const Result<Choice> c = choose(in);
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_STREQ(c.value().algorithm->name, "two_level");
  EXPECT_EQ(c.value().slices_per_round, 3u);
  EXPECT_GE(in.link_bytes / c.value().slice_bytes, 25u) << "8 rings of 3 slices, and one";
  in.link_bytes = in.cast_bytes = 1024;
  EXPECT_EQ(chosen(in),
            "all_reduce by two_level needs 25 slots of 64 bytes and more a link on these hosts; "
            "raise TR_LINK_BYTES and TR_CAST_BYTES");
}

}  // namespace
}  // namespace treering
