// The store: its key, its port, foreign connections.
#include "bootstrap/store.hpp"

#include <atomic>
#include <gtest/gtest.h>

#include "bootstrap/store_wire.hpp"
#include "core/handshake.hpp"
#include "core/key128.hpp"
#include "tests/unit/bootstrap_util.hpp"

namespace treering {
namespace {

UniqueFd connect_to(std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.reset();
  return fd;
}

TEST(SipHash, MatchesThePublishedVectors) {
  // The reference implementation's vectors for SipHash-2-4-128: key 0..15, message of 0 and 1
  // bytes.
  Key128 key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<unsigned char>(i);
  const Key128 empty = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                        0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93};
  const Key128 one = {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44,
                      0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45};
  EXPECT_EQ(siphash128(key, nullptr, 0), empty);
  EXPECT_EQ(siphash128(key, "\0", 1), one);
}

NetAddress loopback() {
  NetAddress address;
  EXPECT_TRUE(parse_address("127.0.0.1", address));
  return address;
}

class StoreTest : public testing::Test {
 protected:
  void start(std::vector<std::uint16_t> ports = {0}) {
    key_ = random_secret().value();
    auto server = StoreServer::start(key_, {loopback()}, ports, 1, Deadline::never());
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }
  StoreJoin join_as(int size, int rank) const {
    StoreJoin join;
    join.key = key_;
    join.addresses = {loopback()};
    if (server_) join.ports = {server_->port()};
    join.group = 1;
    join.size = size;
    join.rank = rank;
    join.server_name = "the test";
    return join;
  }
  void expect_four_ranks_meet(const std::vector<std::uint16_t>& ports,
                              std::uint64_t group = 1) const {
    on_threads({0, 1, 2, 3}, [&](int rank) {
      StoreJoin join = join_as(4, rank);
      join.ports = ports;
      join.group = group;
      auto joined = join_store(join, quick_config());
      ASSERT_TRUE(joined.ok()) << joined.status().message();
      EXPECT_TRUE(exchanges_well(*joined.value(), 3));
    });
  }

  Secret key_{};
  std::unique_ptr<StoreServer> server_;
};

TEST_F(StoreTest, TheWrongKeyIsRefusedAtOnceAndHarmsNobody) {
  start();
  StoreJoin foreign = join_as(4, 0);
  foreign.key[5] ^= 1;
  const auto begin = Clock::now();
  const Status status = join_store(foreign, quick_config()).status();
  EXPECT_EQ(status.code(), Code::kRemote);
  EXPECT_CONTAINS(status.message(), "another job");
  EXPECT_LT(seconds_since(begin), 1);
  expect_four_ranks_meet({server_->port()});
}

TEST_F(StoreTest, ForeignConnectionsTakeNoPlace) {
  start();
  const std::uint16_t port = server_->port();
  std::atomic<bool> stop{false};
  std::atomic<int> connections{0};
  std::vector<std::thread> intruders;
  for (int kind = 0; kind < 5; ++kind) {
    intruders.emplace_back([&, kind] {
      std::mt19937 random(static_cast<unsigned>(kind));
      std::vector<UniqueFd> silent;
      while (!stop.load(std::memory_order_relaxed)) {
        UniqueFd fd = connect_to(port);
        if (!fd.valid()) continue;
        connections.fetch_add(1, std::memory_order_relaxed);
        std::string text;
        if (kind == 0) {  // reset
          const linger hard{1, 0};
          ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        } else if (kind == 1) {
          text = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        } else if (kind == 2) {
          text.resize(random() % 4096);
          for (char& c : text) c = static_cast<char>(random());
        } else if (kind == 3) {
          // Begins like one of us: a true greeting, then garbage for a proof.
          text = Handshake::start(Handshake::Role::kConnector, Secret{}, "store")
                     .value()
                     .take_output();
          for (std::size_t i = random() % 200; i > 0; --i) text += static_cast<char>(random());
        } else {
          silent.push_back(std::move(fd));
          if (silent.size() > 200) silent.clear();
          continue;
        }
        (void)::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
      }
    });
  }
  for (std::uint64_t group = 1; group <= 10; ++group) {
    server_->promise(group + 1, Deadline::never());
    expect_four_ranks_meet({port}, group);
  }
  stop.store(true, std::memory_order_relaxed);
  for (std::thread& intruder : intruders) intruder.join();
  EXPECT_GT(connections.load(std::memory_order_relaxed), 100);
}

TEST_F(StoreTest, ManySilentConnectionsDelayNobody) {
  start();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 700; ++i) silent.push_back(connect_to(server_->port()));
  const auto begin = Clock::now();
  expect_four_ranks_meet({server_->port()});
  EXPECT_LT(seconds_since(begin), kGreetingMs / 1000.0);
}

TEST_F(StoreTest, ABusyPortIsAnErrorAtOnce) {
  const ForeignListener busy;
  const auto server = StoreServer::start(random_secret().value(), {loopback()}, {busy.port()}, 1,
                                         Deadline::never());
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.status().code(), Code::kSystem);
  EXPECT_CONTAINS(server.status().message(), "port " + std::to_string(busy.port()));
  EXPECT_CONTAINS(server.status().message(), "Address already in use");
}

TEST_F(StoreTest, ABusyPortOfSeveralIsPassedOver) {
  const ForeignListener silent;
  const ForeignListener talker("220 mail.example ESMTP ready, say hello\r\n");
  start({silent.port(), talker.port(), 0});
  expect_four_ranks_meet({silent.port(), talker.port(), server_->port()});
}

TEST_F(StoreTest, AForeignListenerIsNamed) {
  const ForeignListener talker("220 mail.example ESMTP ready, say hello\r\n");
  StoreJoin join = join_as(2, 1);
  join.ports = {talker.port()};
  const Status at_once = join_store(join, quick_config()).status();
  EXPECT_EQ(at_once.code(), Code::kRemote);
  EXPECT_CONTAINS(at_once.message(), "no Treering store");
  EXPECT_CONTAINS(at_once.message(), "127.0.0.1:" + std::to_string(talker.port()));
  join.server_may_be_late = true;
  const Status late = join_store(join, quick_config(300)).status();
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_CONTAINS(late.message(), "no Treering store");
}

// Whatever an intruder has heard of a true connection helps nobody later.
TEST_F(StoreTest, AReplayedConnectionTakesNoPlace) {
  start();
  std::string heard;  // what a rank says from its first byte to its place
  {
    const UniqueFd fd = connect_to(server_->port());
    Handshake handshake =
        Handshake::start(Handshake::Role::kConnector, key_, wire::kContext).value();
    while (!handshake.is_done()) {
      const std::string say = handshake.take_output();
      heard += say;
      ASSERT_EQ(::send(fd.get(), say.data(), say.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(say.size()));
      char buffer[64];
      const ssize_t n = ::recv(fd.get(), buffer, handshake.wanted_bytes(), 0);
      ASSERT_GT(n, 0);
      handshake.feed(buffer, static_cast<std::size_t>(n));
      ASSERT_TRUE(handshake.status().ok()) << handshake.status().message();
    }
    wire::Hello hello;
    hello.group = 7;
    hello.size = 4;
    heard.append(reinterpret_cast<const char*>(&hello), sizeof hello);
  }
  for (int i = 0; i < 20; ++i) {
    const UniqueFd fd = connect_to(server_->port());
    (void)::send(fd.get(), heard.data(), heard.size(), MSG_NOSIGNAL);
    // The greeting, then a refusal of 32 zeros or an end; never the frame of a welcome.
    std::string answer;
    char buffer[256];
    for (ssize_t n = 0; (n = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;) {
      answer.append(buffer, static_cast<std::size_t>(n));
    }
    EXPECT_LE(answer.size(), 80u);
    if (answer.size() > 48) {
      EXPECT_EQ(answer.substr(48), std::string(answer.size() - 48, '\0'));
    }
  }
  expect_four_ranks_meet({server_->port()});
}

// A rank's true connection, cut by the peer or silent after each of its bytes.
TEST_F(StoreTest, HalfOpenConnectionsAtEveryByteDelayNobody) {
  start();
  std::vector<UniqueFd> half_open;
  for (std::size_t bytes = 0; bytes <= kHandshakeBytes; ++bytes) {
    half_open.push_back(connect_to(server_->port()));
    Handshake handshake =
        Handshake::start(Handshake::Role::kConnector, key_, wire::kContext).value();
    std::string say = handshake.take_output();
    if (bytes > say.size()) {
      char greeting[48];
      ASSERT_EQ(::recv(half_open.back().get(), greeting, sizeof greeting, MSG_WAITALL), 48);
      handshake.feed(greeting, sizeof greeting);
      say += handshake.take_output();
    }
    ASSERT_EQ(::send(half_open.back().get(), say.data(), bytes, MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes));
    if (bytes % 2 == 0) half_open.back().reset();
  }
  const auto begin = Clock::now();
  expect_four_ranks_meet({server_->port()});
  EXPECT_LT(seconds_since(begin), kGreetingMs / 1000.0);
}

TEST_F(StoreTest, AddressesThatLeadNowhereAreTriedBesideTheTrueOne) {
  start();
  NetAddress nowhere, nobody;
  ASSERT_TRUE(parse_address("192.0.2.1", nowhere));  // RFC 5737: for documents only
  ASSERT_TRUE(parse_address("127.0.0.9", nobody));
  on_threads({0, 1}, [&](int rank) {
    StoreJoin join = join_as(2, rank);
    join.addresses = {nowhere, nobody, loopback()};
    auto joined = join_store(join, quick_config());
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    EXPECT_TRUE(exchanges_well(*joined.value(), 1));
  });
  StoreJoin lost = join_as(2, 0);
  lost.addresses = {nowhere, nobody};
  const Status status = join_store(lost, quick_config(500)).status();
  EXPECT_FALSE(status.ok());
  EXPECT_CONTAINS(status.message(), "192.0.2.1:" + std::to_string(server_->port()));
  EXPECT_CONTAINS(status.message(), "127.0.0.9:" + std::to_string(server_->port()));
}

TEST_F(StoreTest, RanksOfOneGroupHaveOneLinkKeyAndGroupsHaveOthers) {
  start();
  std::vector<Secret> keys(6);
  on_threads(first_ranks(6), [&](int i) {
    StoreJoin join = join_as(3, i % 3);
    join.group = 1 + static_cast<std::uint64_t>(i / 3);
    auto joined = join_store(join, quick_config());
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    keys[static_cast<std::size_t>(i)] = joined.value()->link_key();
    EXPECT_TRUE(exchanges_well(*joined.value(), 1));  // nobody leaves before all are there
  });
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_EQ(keys[0], keys[2]);
  EXPECT_EQ(keys[3], keys[5]);
  EXPECT_NE(keys[0], keys[3]);
  EXPECT_NE(keys[0], key_);
}

TEST_F(StoreTest, GroupsDoNotMix) {
  start();
  on_threads(first_ranks(12), [&](int i) {
    StoreJoin join = join_as(3, i % 3);
    join.group = 1 + static_cast<std::uint64_t>(i / 3);
    auto joined = join_store(join, quick_config());
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    for (int exchange = 0; exchange < 20; ++exchange) {
      const auto blobs =
          joined.value()->all_gather(std::to_string(i) + "." + std::to_string(exchange));
      ASSERT_TRUE(blobs.ok()) << blobs.status().message();
      for (int r = 0; r < 3; ++r) {
        EXPECT_EQ(blobs.value()[static_cast<std::size_t>(r)],
                  std::to_string(i / 3 * 3 + r) + "." + std::to_string(exchange));
      }
    }
  });
}

}  // namespace
}  // namespace treering
