// The layout of a segment: nothing overlaps, nothing shares a line or a page that must not.
#include "transports/shm/layout.hpp"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace treering::shm {
namespace {

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::string what;
};

std::vector<LinkId> links_of_writer(int ranks, int src) {
  std::vector<LinkId> ids;
  for (int dst = 0; dst < ranks; ++dst) {
    for (int channel = 0; channel < kPairChannels && dst != src; ++channel)
      ids.push_back({LinkId::Kind::kPair, static_cast<std::uint8_t>(channel), src, dst});
    ids.push_back({LinkId::Kind::kSendRecv, 0, src, dst});
  }
  ids.push_back({LinkId::Kind::kCast, 0, src, -1});
  return ids;
}

TEST(Layout, PartsOfASegmentDoNotOverlap) {
  for (int ranks : {1, 2, 3, 4, 5, 8, 17, 64}) {
    const Layout layout(ranks, {5000, 70000, 4096});
    for (int src : {0, ranks - 1}) {
      std::vector<Range> ranges{{0, sizeof(Board), "board"}};
      for (const LinkId& id : links_of_writer(ranks, src)) {
        ASSERT_TRUE(layout.contains(id)) << to_string(id);
        const LinkPlace place = layout.place(id);
        const std::size_t heads =
            id.kind == LinkId::Kind::kCast ? static_cast<std::size_t>(ranks) : 1;
        ASSERT_EQ(place.lines % 64, 0U);
        ASSERT_EQ(place.heads, place.lines + 16 * 64);
        ASSERT_EQ(place.end_of_heads, place.heads + heads * 64);
        ASSERT_EQ(place.data % 4096, 0U);
        ASSERT_GE(place.data_bytes, layout.sizes().of(id.kind));
        ranges.push_back({place.lines, place.end_of_heads, to_string(id) + " control"});
        ranges.push_back(
            {place.data, round_up(place.data + place.data_bytes, 4096), to_string(id) + " data"});
      }
      std::ranges::sort(ranges, {}, &Range::begin);
      for (std::size_t i = 1; i < ranges.size(); ++i)
        ASSERT_LE(ranges[i - 1].end, ranges[i].begin)
            << ranges[i - 1].what << ", " << ranges[i].what;
      ASSERT_LE(ranges.back().end, layout.bytes());
      ASSERT_EQ(layout.bytes() % 4096, 0U);
    }
  }
}

TEST(Layout, LinkSizesAreWholePages) {
  const Layout layout(2, {1, 4097, 8192});
  EXPECT_EQ(layout.sizes().pair, 4096U);
  EXPECT_EQ(layout.sizes().cast, 8192U);
  EXPECT_EQ(layout.sizes().sendrecv, 8192U);
}

TEST(Layout, KnowsWhichLinksExist) {
  const Layout layout(3, {4096, 4096, 4096});
  using Kind = LinkId::Kind;
  EXPECT_TRUE(layout.contains({Kind::kSendRecv, 0, 1, 1}));
  EXPECT_FALSE(layout.contains({Kind::kPair, 0, 1, 1}));
  EXPECT_FALSE(layout.contains({Kind::kPair, kPairChannels, 0, 1}));
  EXPECT_FALSE(layout.contains({Kind::kPair, 0, 0, 3}));
  EXPECT_FALSE(layout.contains({Kind::kPair, 0, -1, 0}));
  EXPECT_FALSE(layout.contains({Kind::kPair, 0, 0, -1}));
  EXPECT_FALSE(layout.contains({Kind::kCast, 0, 0, 1}));
  EXPECT_FALSE(layout.contains({Kind::kCast, 1, 0, -1}));
  EXPECT_FALSE(layout.contains({Kind::kSendRecv, 1, 0, 1}));
}

TEST(Layout, AThousandRanksFitIntoTheAddressSpace) {
  const Layout layout(1024, {512 * 1024, 4 * 1024 * 1024, 512 * 1024});
  const LinkPlace last = layout.place({LinkId::Kind::kCast, 0, 1023, -1});
  EXPECT_GT(layout.bytes(), std::size_t{1} << 30);
  EXPECT_EQ(last.data + last.data_bytes, layout.bytes());
  EXPECT_LT(layout.bytes() * 1024, std::size_t{1} << 46);
}

}  // namespace
}  // namespace treering::shm
