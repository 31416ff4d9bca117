// The FIFO alone: its rules one by one in one thread, and random traffic between threads.
#include "transports/fifo.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "tests/transports/fifo_traffic.hpp"

namespace treering::test {
namespace {

std::mt19937_64 seeded() {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const char* const given = std::getenv("TR_TEST_SEED");
  const auto seed =
      given != nullptr ? std::strtoull(given, nullptr, 0) : static_cast<unsigned long long>(now);
  std::printf("seed: TR_TEST_SEED=%llu\n", seed);
  return std::mt19937_64(seed);
}

TEST(Fifo, PairCarriesRandomSizesAndGeometries) {
  auto random = seeded();
  EXPECT_EQ(exchange(random_messages(2000, 20, random), 1), "");
}

TEST(Fifo, PairMixesInlineMessagesAndSlots) {
  auto random = seeded();
  EXPECT_EQ(exchange(random_messages(3000, 80, random), 1), "");
}

TEST(Fifo, CastReachesThreeReaders) {
  auto random = seeded();
  EXPECT_EQ(exchange(random_messages(1000, 40, random), 3), "");
}

TEST(Fifo, SlotsAreReusedTenThousandTimes) {
  EXPECT_EQ(exchange(std::vector<Message>(10000, {200, kDataBytes / 8}), 1), "");
}

TEST(Fifo, InlineLinesAreReusedTenThousandTimes) {
  EXPECT_EQ(exchange(std::vector<Message>(10000, {8, 64}), 1), "");
}

TEST(Fifo, CreditEndsWithTheSlots) {
  Link link(1);
  FifoRx rx = link.rx(1);
  constexpr std::size_t kSlot = kDataBytes / 4;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(tx_ready(link.tx, kSlot, kSlot)) << i;
    tx_post(link.tx, 0);
  }
  EXPECT_FALSE(tx_ready(link.tx, kSlot, kSlot));
  ASSERT_TRUE(rx_ready(rx));
  rx_release(rx);
  EXPECT_TRUE(tx_ready(link.tx, kSlot, kSlot));
}

TEST(Fifo, InlineCreditEndsWithTheLines) {
  Link link(1);
  for (std::uint32_t i = 0; i < kFifoLines; ++i) {
    ASSERT_TRUE(tx_ready(link.tx, kInlineBytes, 64)) << i;
    tx_post(link.tx, 0);
  }
  EXPECT_FALSE(tx_ready(link.tx, 1, 64));
}

TEST(Fifo, GeometryChangesOnlyWhenEveryReaderHasReleasedEverything) {
  Link link(2);
  FifoRx first = link.rx(1);
  FifoRx second = link.rx(2);
  ASSERT_TRUE(tx_ready(link.tx, 1024, 1024));
  tx_post(link.tx, 0);
  EXPECT_TRUE(tx_ready(link.tx, 1024, 1024));
  EXPECT_FALSE(tx_ready(link.tx, 2048, 2048));
  EXPECT_TRUE(tx_ready(link.tx, 8, 2048));  // a message without a slot need not wait
  rx_release(first);
  EXPECT_FALSE(tx_ready(link.tx, 2048, 2048));
  rx_release(second);
  EXPECT_TRUE(tx_ready(link.tx, 2048, 2048));
}

TEST(Fifo, NothingIsReadyBeforeItIsPosted) {
  Link link(1);
  FifoRx rx = link.rx(1);
  EXPECT_FALSE(rx_ready(rx));
  ASSERT_TRUE(tx_ready(link.tx, 48, 64));
  EXPECT_FALSE(rx_ready(rx));
  tx_post(link.tx, 7);
  EXPECT_TRUE(rx_ready(rx));
  EXPECT_EQ(rx_line(rx).signature, 7U);
  rx_release(rx);
  EXPECT_FALSE(rx_ready(rx));
}

TEST(Fifo, ShortMessagesLieInTheLineAndLongOnesInAnAlignedSlot) {
  Link link(1);
  const auto* const line = reinterpret_cast<const std::byte*>(&link.tx.lines[0]);
  ASSERT_TRUE(tx_ready(link.tx, 320, 320));
  EXPECT_EQ(tx_payload(link.tx, kInlineBytes), line);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(tx_ready(link.tx, 300, 320));
    EXPECT_EQ(tx_payload(link.tx, 300), link.tx.data + i * 320);
    tx_post(link.tx, 0);
  }
}

}  // namespace
}  // namespace treering::test
