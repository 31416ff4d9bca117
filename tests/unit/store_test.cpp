// The store: its key, its port, foreign connections.
#include "bootstrap/store.hpp"

#include <atomic>
#include <gtest/gtest.h>

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

class StoreTest : public testing::Test {
 protected:
  void start(std::vector<std::uint16_t> ports = {0}) {
    key_ = random_key().value();
    auto server = StoreServer::start(key_, ports, 1, Deadline::never());
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }
  StoreJoin join_as(int size, int rank) const {
    StoreJoin join;
    join.key = key_;
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

  StoreKey key_{};
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
          text = std::string("1SRT") + std::string(random() % 60, '\0');  // begins like one of us
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
  const auto server = StoreServer::start(random_key().value(), {busy.port()}, 1, Deadline::never());
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
  join.server_may_be_late = true;
  const Status late = join_store(join, quick_config(300)).status();
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_CONTAINS(late.message(), "no Treering store");
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
