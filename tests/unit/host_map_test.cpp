// Which ranks share a host, in all the ways to write it.
#include "core/host_map.hpp"

#include <gtest/gtest.h>

namespace treering {
namespace {

// "0 1 | 2": the ranks of each host.
std::string members(const HostMap& map) {
  const Hosts at = map.view();
  std::string text;
  for (int h = 0; h < at.count; ++h) {
    if (h > 0) text += " |";
    for (int m = 0; m < at.members_of(h); ++m) {
      const int rank = at.rank_of(h, m);
      EXPECT_EQ(at.host_of(rank), h);
      EXPECT_EQ(at.member_of(rank), m);
      text += (text.empty() ? "" : " ") + std::to_string(rank);
    }
  }
  return text;
}

std::string parsed(const char* text) {
  const Result<HostMap> map = HostMap::parse(text);
  return map.ok() ? members(map.value()) : "error: " + map.status().message();
}

TEST(HostMap, IsWrittenInThreeWays) {
  EXPECT_EQ(parsed("2x3"), "0 1 2 | 3 4 5");
  EXPECT_EQ(parsed("1x2"), "0 1");
  EXPECT_EQ(parsed("3"), "0 1 2");
  EXPECT_EQ(parsed("2+1+3"), "0 1 | 2 | 3 4 5");
  EXPECT_EQ(parsed("0,1,0,1"), "0 2 | 1 3");
  EXPECT_EQ(parsed("b,a,a,b,c"), "0 3 | 1 2 | 4");
}

TEST(HostMap, NumbersHostsByTheirLowestRanks) {
  const HostMap map({7, -3, 7, 100, -3});
  EXPECT_EQ(members(map), "0 2 | 1 4 | 3");
  EXPECT_EQ(map.hosts(), 3);
  EXPECT_EQ(map.ranks(), 5);
  EXPECT_EQ(map.most_members(), 2);
}

TEST(HostMap, SaysWhatItIsInTheShortestWay) {
  for (const char* text : {"2x3", "1x4", "5x1", "2+1+3", "0,1,0,1", "0,1,1,0,2"}) {
    EXPECT_EQ(HostMap::parse(text).value().text(), text);
  }
  EXPECT_EQ(HostMap::parse("2+2").value().text(), "2x2");
  EXPECT_EQ(HostMap::parse("x,x,y").value().text(), "2+1");
  EXPECT_EQ(HostMap::one_host(3).text(), "1x3");
}

TEST(HostMap, KnowsWhetherHostsAreConsecutive) {
  EXPECT_TRUE(HostMap::parse("2+1+3").value().contiguous());
  EXPECT_TRUE(HostMap::parse("z,z,a").value().contiguous());
  EXPECT_FALSE(HostMap::parse("0,1,0").value().contiguous());
}

TEST(HostMap, ViewsOutliveAMove) {
  HostMap map = HostMap::parse("0,1,0").value();
  const Hosts at = map.view();
  const HostMap moved = std::move(map);
  EXPECT_EQ(at.rank_of(0, 1), 2);
  EXPECT_EQ(members(moved), "0 2 | 1");
}

TEST(HostMap, RefusesWhatIsNone) {
  for (const char* text :
       {"", "0x2", "2x0", "x", "2x", "2x2x2", "2+", "2+0", "a", "-1", "2x-2", "1,,2", ",", "99999",
        "9000+9000", "200x200", "2 x2", "16384x16384", "2+x"}) {
    const Result<HostMap> map = HostMap::parse(text);
    ASSERT_FALSE(map.ok()) << text;
    EXPECT_EQ(map.status().message().find("hosts \"" + std::string(text) + "\": "), 0u)
        << map.status().message();
    EXPECT_NE(map.status().message().find("write 2x4"), std::string::npos)
        << map.status().message();
  }
}

}  // namespace
}  // namespace treering
