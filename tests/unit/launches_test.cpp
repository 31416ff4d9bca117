// Which calls of a group become one launch.
#include "comm/launches.hpp"

#include <gtest/gtest.h>

namespace treering {
namespace {

using Launches = std::vector<std::vector<std::size_t>>;

std::byte g_memory[64];
int g_one, g_other;  // communicators

GroupedCall call(int in, int out, bool is_message, const int* comm = &g_one) {
  GroupedCall c;
  if (in >= 0) c.footprint.in = g_memory + in, c.footprint.in_bytes = 1;
  if (out >= 0) c.footprint.out = g_memory + out, c.footprint.out_bytes = 1;
  c.comm = comm;
  c.on_device = true;
  c.is_message = is_message;
  return c;
}
GroupedCall send(int in, const int* comm = &g_one) { return call(in, -1, true, comm); }
GroupedCall recv(int out, const int* comm = &g_one) { return call(-1, out, true, comm); }
GroupedCall collective(int in, int out, const int* comm = &g_one) {
  return call(in, out, false, comm);
}
GroupedCall on_host(GroupedCall c) {
  c.on_device = false;
  return c;
}
Launches launches(std::vector<GroupedCall> calls) { return launches_of(calls); }

TEST(Launches, SendsAndReceivesAreOne) {
  EXPECT_EQ(launches({}), Launches{});
  EXPECT_EQ(launches({send(0), recv(1), send(0), recv(2)}), (Launches{{0, 1, 2, 3}}));
}

TEST(Launches, CollectivesOfTheCommunicatorDivideThem) {
  EXPECT_EQ(launches({send(0), collective(1, 2), collective(1, 3), recv(4), send(5)}),
            (Launches{{0}, {1, 2}, {3, 4}}));
}

TEST(Launches, NeighbouringCollectivesAreOne) {
  EXPECT_EQ(launches({collective(0, 1), collective(1, 0), collective(0, 0)}),
            (Launches{{0, 1, 2}}));  // whatever they share
  EXPECT_EQ(launches({collective(0, 1), send(2), collective(3, 4), collective(5, 6)}),
            (Launches{{0}, {1}, {2, 3}}));
  EXPECT_EQ(launches({collective(0, 1), collective(2, 3, &g_other), collective(4, 5)}),
            (Launches{{0}, {1}, {2}}));
  EXPECT_EQ(launches({collective(0, 1), on_host(collective(2, 3)), collective(4, 5)}),
            (Launches{{0}, {1}, {2}}));
  // What lies between may go to an earlier launch; the collectives keep their places.
  EXPECT_EQ(launches({send(0), collective(2, 3, &g_other), recv(1), collective(4, 5, &g_other)}),
            (Launches{{0, 2}, {1, 3}}));
}

TEST(Launches, AStreamWaitsForNoOther) {
  std::vector<GroupedCall> calls{collective(0, 1), collective(2, 3), collective(4, 5)};
  calls[1].stream = g_memory;
  EXPECT_EQ(launches(calls), (Launches{{0}, {1}, {2}}));
  calls[2].stream = g_memory;
  EXPECT_EQ(launches(calls), (Launches{{0}, {1, 2}}));
}

TEST(Launches, OtherCommunicatorsAndHostMemoryDoNot) {
  EXPECT_EQ(launches({send(0), send(1, &g_other), collective(2, 3, &g_other), recv(4),
                      recv(5, &g_other), send(6)}),
            (Launches{{0, 3, 5}, {1}, {2}, {4}}));
  EXPECT_EQ(launches({send(0), on_host(collective(1, 2)), on_host(send(3)), recv(4)}),
            (Launches{{0, 3}, {1}, {2}}));
}

TEST(Launches, ASharedBufferKeepsItsOrder) {
  EXPECT_EQ(launches({recv(0), send(0), recv(1)}), (Launches{{0}, {1, 2}}));  // sends what came
  EXPECT_EQ(launches({send(0), recv(0)}), (Launches{{0}, {1}}));
  EXPECT_EQ(launches({recv(0), recv(0)}), (Launches{{0}, {1}}));
  EXPECT_EQ(launches({send(0), collective(1, 2, &g_other), send(2)}),
            (Launches{{0}, {1}, {2}}));  // of whichever communicator
  GroupedCall barrier = collective(-1, -1, &g_other);
  barrier.footprint.everything = true;
  EXPECT_EQ(launches({send(0), barrier, send(1)}), (Launches{{0}, {1}, {2}}));
}

}  // namespace
}  // namespace treering
