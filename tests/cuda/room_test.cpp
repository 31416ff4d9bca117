// How many channels the ranks of a communicator can have, by hand.
#include <cstdio>
#include <gtest/gtest.h>

#include "engine/device_room.hpp"

namespace treering {
namespace {

DeviceRoom room(const char* bus_id, std::uint64_t process, int blocks, int reserved = 0) {
  DeviceRoom r;
  std::snprintf(r.bus_id, sizeof r.bus_id, "%s", bus_id);
  r.process = {process, process};
  r.blocks = blocks;
  r.reserved = reserved;
  return r;
}

int channels(const std::vector<DeviceRoom>& ranks, int wanted = 4) {
  const Result<ChannelChoice> c = choose_channels(ranks, wanted);
  return c.ok() ? c.value().channels : 0;
}

// One GPU of 132 multiprocessors, a block on each.
TEST(Channels, OfManyRanksOnOneGpu) {
  const int expected[] = {4, 4, 4, 4, 4, 3, 3, 2};  // of 1..8 ranks: 24, 18, 12 blocks a rank
  for (int n = 1; n <= 8; ++n) {
    const std::vector<DeviceRoom> ranks(static_cast<std::size_t>(n), room("a", 1, 132));
    EXPECT_EQ(channels(ranks), expected[n - 1]) << n;
    const Result<ChannelChoice> c = choose_channels(ranks, 4);
    EXPECT_EQ(c.value().why.empty(), expected[n - 1] == 4) << c.value().why;
  }
  EXPECT_EQ(channels(std::vector<DeviceRoom>(10, room("a", 1, 132))), 1);  // 10 * 12
  EXPECT_EQ(channels(std::vector<DeviceRoom>(11, room("a", 1, 132))), 0);  // 11 * 13
  EXPECT_EQ(channels(std::vector<DeviceRoom>(8, room("a", 1, 132)), 1), 1);
}

TEST(Channels, TheFullestGpuDecidesForAll) {
  EXPECT_EQ(channels({room("a", 1, 132), room("b", 1, 20), room("c", 1, 132)}), 3);
  EXPECT_EQ(channels({room("a", 1, 132), room("b", 1, 5)}), 0);
  const Result<ChannelChoice> c = choose_channels({room("a", 1, 20), room("b", 2, 13)}, 4);
  EXPECT_EQ(c.value().channels, 2);
  EXPECT_EQ(c.value().why,
            "GPU b holds 13 blocks at once, of which other communicators have reserved 0; 1 rank "
            "of this one needs 24 with 4 channels");
}

// Ranks of a process tell of the same reservations, at different moments; processes of different
// ones.
TEST(Channels, ReservationsCountOncePerProcess) {
  EXPECT_EQ(channels({room("a", 1, 72, 24), room("a", 1, 72, 0)}), 4);
  EXPECT_EQ(channels({room("a", 1, 72, 24), room("a", 2, 72, 24)}), 2);
  EXPECT_EQ(channels({room("a", 1, 71, 24), room("a", 1, 71, 0)}), 3);
}

// MPS may give processes different shares of a GPU.
TEST(Channels, TheSmallestViewOfAGpuCounts) {
  EXPECT_EQ(channels({room("a", 1, 132), room("a", 2, 40)}), 3);
}

}  // namespace
}  // namespace treering
