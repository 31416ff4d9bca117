// Frames over connections: what both ends of a link between hosts do with them, without a network.
#include "transports/tcp/stream.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "transports/tcp/checksum.hpp"
#include "transports/tcp/peer_links.hpp"

namespace treering::tcp {
namespace {

constexpr std::size_t kDataBytes = 64 << 10;
constexpr std::array<std::size_t, kLinks> kSizes = {kDataBytes, kDataBytes, kDataBytes, kDataBytes};

unsigned test_seed() {
  static const unsigned seed = [] {
    const char* const given = std::getenv("TR_TEST_SEED");
    const unsigned value =
        given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device{}();
    std::printf("seed %u\n", value);
    return value;
  }();
  return seed;
}

// One rank's side: writes link i to the other one, and reads the other's.
struct Side {
  Side(int rank, bool checksum) : links(rank, 1 - rank, kSizes, checksum) {
    for (int i = 0; i < kLinks; ++i) {
      memory.push_back(LinkMemory::make(kDataBytes).value());
      tx[i].lines = memory.back().lines();
      tx[i].data = memory.back().data();
      tx[i].data_bytes = kDataBytes;
      tx[i].heads = memory.back().head();
      tx[i].lengths = lengths[i].data();
      links.open_out(i, tx[i], *memory.back().head());
      const LinkMemory* const in = links.open_in(i).value();
      rx[i] = {in->lines(), in->data(), kDataBytes, in->head(), 0};
    }
  }
  bool move() {
    bool moved = false;
    for (auto& stream : streams) {
      moved |= stream->send(links, false);
      if (!stream->is_closed()) moved |= stream->receive(links);
    }
    if (!moved) {
      for (auto& stream : streams) moved |= stream->send(links, true);
    }
    return moved;
  }
  PeerLinks links;
  std::vector<LinkMemory> memory;
  std::array<std::array<FifoLength, kFifoLines>, kLinks> lengths{};
  FifoTx tx[kLinks];
  FifoRx rx[kLinks];
  std::vector<std::unique_ptr<Stream>> streams;
};

std::array<UniqueFd, 2> pair_of_sockets() {
  int fds[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0) std::abort();
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

void join(Side& a, Side& b, int streams) {
  for (int i = 0; i < streams; ++i) {
    std::array<UniqueFd, 2> ends = pair_of_sockets();
    // Small buffers, so that frames are cut anywhere.
    for (const UniqueFd& end : ends) {
      const int bytes = 4096;
      ::setsockopt(end.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    }
    a.streams.push_back(std::make_unique<Stream>(std::move(ends[0])));
    b.streams.push_back(std::make_unique<Stream>(std::move(ends[1])));
  }
}

// Length and slot size of message m of a link, the same at both ends; slots change now and then.
std::size_t slot_of(std::uint64_t m) { return m / 40 % 2 == 0 ? 4096 : 16384; }
std::size_t length_of(unsigned seed, int link, std::uint64_t m) {
  std::mt19937 random(seed ^ static_cast<unsigned>(link) << 20 ^ static_cast<unsigned>(m));
  return random() % 3 == 0 ? 1 + random() % kInlineBytes : 1 + random() % slot_of(m);
}
std::byte byte_at(int link, std::uint64_t m, std::size_t i) {
  return static_cast<std::byte>(static_cast<std::size_t>(link) * 37 + m * 11 + i * 7 + (i >> 8));
}

class Streams : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(Streams, CarryEveryMessageWhereItBelongs) {
  const auto [streams, checksum] = GetParam();
  if (checksum && !check_checksums().ok()) GTEST_SKIP() << check_checksums().message();
  constexpr std::uint64_t kMessages = 300;
  const unsigned seed = test_seed();
  Side sides[2] = {Side(0, checksum), Side(1, checksum)};
  join(sides[0], sides[1], streams);
  bool done = false;
  for (int idle = 0; !done && idle < 1000;) {
    done = true;
    bool moved = false;
    for (Side& side : sides) {
      for (int i = 0; i < kLinks; ++i) {
        FifoTx& tx = side.tx[i];
        const std::uint64_t m = tx.next;
        const std::size_t bytes = length_of(seed, i, m);
        if (m < kMessages && tx_ready(tx, bytes, slot_of(m))) {
          std::byte* const payload = tx_payload(tx, bytes);
          for (std::size_t b = 0; b < bytes; ++b) payload[b] = byte_at(i, m, b);
          tx_post(tx, m * 10 + static_cast<std::uint64_t>(i));
          moved = true;
        }
        FifoRx& rx = side.rx[i];
        if (rx.next < kMessages && rx_ready(rx)) {
          const std::uint64_t n = rx.next;
          ASSERT_EQ(rx_line(rx).signature, n * 10 + static_cast<std::uint64_t>(i));
          const std::size_t expected = length_of(seed, i, n);
          const std::byte* const payload = rx_payload(rx, expected, slot_of(n));
          for (std::size_t b = 0; b < expected; ++b)
            ASSERT_EQ(payload[b], byte_at(i, n, b)) << "link " << i << " message " << n;
          rx_release(rx);
          moved = true;
        }
        done = done && rx.next == kMessages && tx.next == kMessages;
      }
      moved |= side.move();
      for (const auto& stream : side.streams) ASSERT_TRUE(stream->error().ok());
    }
    idle = moved ? 0 : idle + 1;
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(sides[0].links.bytes_sent(), sides[1].links.bytes_received());
}
INSTANTIATE_TEST_SUITE_P(Streams, Streams,
                         testing::Combine(testing::Values(1, 3), testing::Bool()));

// Posts one message of `bytes` bytes on link 0 and lets `damage` at what goes over the connection;
// the receiver's error.
template <class Damage>
std::string error_after(bool checksum, std::size_t bytes, Damage damage) {
  Side sender(0, checksum), receiver(1, checksum);
  std::array<UniqueFd, 2> first = pair_of_sockets(), second = pair_of_sockets();
  sender.streams.push_back(std::make_unique<Stream>(std::move(first[0])));
  receiver.streams.push_back(std::make_unique<Stream>(std::move(second[0])));
  EXPECT_TRUE(tx_ready(sender.tx[0], bytes, 4096));
  std::memset(tx_payload(sender.tx[0], bytes), 'x', bytes);
  tx_post(sender.tx[0], 4711);
  sender.move();
  std::string wire(sizeof(Frame) + bytes, '\0');
  EXPECT_EQ(::recv(first[1].get(), wire.data(), wire.size(), MSG_WAITALL),
            static_cast<ssize_t>(wire.size()));
  damage(wire);
  EXPECT_EQ(::send(second[1].get(), wire.data(), wire.size(), 0),
            static_cast<ssize_t>(wire.size()));
  receiver.move();
  const Status& error = receiver.streams[0]->error();
  EXPECT_EQ(error.ok(), rx_ready(receiver.rx[0]));
  return error.message();
}

TEST(Stream, DamageOfAnyBitIsFoundByTheChecksum) {
  if (!check_checksums().ok()) GTEST_SKIP() << check_checksums().message();
  EXPECT_EQ(error_after(true, 1000, [](std::string&) {}), "");
  std::mt19937 random(test_seed());
  for (int i = 0; i < 200; ++i) {
    const std::size_t bytes = i % 2 == 0 ? 1000 : 40;
    // Of the payload, or of the signature, which the header ends with.
    const std::size_t at = sizeof(Frame) - 8 + random() % (bytes + 8);
    const std::string error = error_after(
        true, bytes, [&](std::string& wire) { wire[at] ^= static_cast<char>(1 << random() % 8); });
    EXPECT_EQ(error,
              "rank 0 sent message 0 of link 0->1, but its checksum is wrong: it was damaged on "
              "the way (TR_CHECKSUM=1 looks)");
  }
}

TEST(Stream, FramesThatFitNowhereAreRefused) {
  const auto with = [](auto change) {
    return error_after(false, 1000, [&](std::string& wire) {
      Frame frame;
      std::memcpy(&frame, wire.data(), sizeof frame);
      change(frame);
      std::memcpy(wire.data(), &frame, sizeof frame);
    });
  };
  EXPECT_EQ(with([](Frame& f) { f.link = 9; }),
            "rank 0 sent message 0 of link 9, but there is no such link");
  EXPECT_EQ(with([](Frame& f) { f.kind = FrameKind{7}; }),
            "rank 0 sent message 0 of link 0->1, but its kind is unknown");
  EXPECT_EQ(with([](Frame& f) { f.bytes = 5000; }),
            "rank 0 sent message 0 of link 0->1, but its length fits no slot");
  EXPECT_EQ(with([](Frame& f) { f.slot_bytes = 100; }),
            "rank 0 sent message 0 of link 0->1, but its length fits no slot");
  EXPECT_EQ(with([](Frame& f) { f.slot_bytes = 2 * kDataBytes; }),
            "rank 0 sent message 0 of link 0->1, but its length fits no slot");
  EXPECT_EQ(with([](Frame& f) { f.number = 16; }),
            "rank 0 sent message 16 of link 0->1, but there is no room for it");
  EXPECT_EQ(with([](Frame& f) { f.number = ~std::uint64_t{0}; }),
            "rank 0 sent message 18446744073709551615 of link 0->1, but there is no room for it");
  EXPECT_EQ(with([](Frame& f) { f.kind = FrameKind::kCredit, f.bytes = 0, f.number = 1; }),
            "rank 0 sent message 1 of link 1->0, but that was never sent");
}

// Whatever comes, nothing outside the link's memory is touched (the sanitizers look) and the end is
// an error or a wait for more.
TEST(Stream, GarbageHurtsNobody) {
  std::mt19937 random(test_seed());
  for (int round = 0; round < 500; ++round) {
    Side receiver(1, false);
    std::array<UniqueFd, 2> ends = pair_of_sockets();
    receiver.streams.push_back(std::make_unique<Stream>(std::move(ends[0])));
    std::string wire;
    for (int i = 0; i < 20; ++i) {
      Frame frame{};
      // Near to what is right, so that it gets far.
      frame.kind = static_cast<FrameKind>(random() % 4);
      frame.link = static_cast<std::uint16_t>(random() % (kLinks + 1));
      frame.bytes = random() % 3 == 0 ? random() : random() % 5000;
      frame.slot_bytes = random() % 4 == 0 ? random() : 64u << random() % 12;
      frame.number = random() % 4 == 0 ? random() : static_cast<std::uint64_t>(i);
      wire.append(reinterpret_cast<const char*>(&frame), sizeof frame);
      wire.append(random() % 3000, static_cast<char>(random()));
    }
    const ssize_t sent = ::send(ends[1].get(), wire.data(), wire.size(), MSG_DONTWAIT);
    ASSERT_GT(sent, 0);
    while (receiver.move()) {
    }
  }
}

// The peer reads nothing: the writer stops at what its slots hold, and buffers no more.
TEST(Stream, BackPressureIsTheSlots) {
  Side sender(0, false), receiver(1, false);
  join(sender, receiver, 1);
  int posted = 0;
  for (int i = 0; i < 100; ++i) {
    if (tx_ready(sender.tx[0], 4096, 4096)) {
      (void)tx_payload(sender.tx[0], 4096);
      tx_post(sender.tx[0], 1);
      ++posted;
    }
    sender.move();
    receiver.move();  // into slots; nobody releases them
  }
  EXPECT_EQ(posted, static_cast<int>(kDataBytes / 4096));
}

}  // namespace
}  // namespace treering::tcp
