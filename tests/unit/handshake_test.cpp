// The handshake of connections: who gets in, and who does not, whatever he says.
#include "core/handshake.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>

#include "core/key128.hpp"
#include "tests/unit/bootstrap_util.hpp"

namespace treering {
namespace {

using Role = Handshake::Role;
const Secret kKey = {'k', 'e', 'y'};

Handshake start(Role role, const Secret& key = kKey, std::string_view context = "links") {
  return Handshake::start(role, key, context).value();
}

// Carries messages both ways, `piece` bytes at a time, until nothing moves.
void carry(Handshake& a, Handshake& b, std::size_t piece = 1000) {
  std::string to_b = a.take_output();
  std::string to_a = b.take_output();
  while (!to_a.empty() || !to_b.empty()) {
    b.feed(to_b.data(), std::min(piece, to_b.size()));
    to_b.erase(0, piece);
    a.feed(to_a.data(), std::min(piece, to_a.size()));
    to_a.erase(0, piece);
    to_b += a.take_output();
    to_a += b.take_output();
  }
}

TEST(Handshake, TwoEndsWithOneKeyMeetHoweverTheBytesCome) {
  for (std::size_t piece : {1, 7, 32, 1000}) {
    Handshake a = start(Role::kConnector);
    Handshake b = start(Role::kAcceptor);
    carry(a, b, piece);
    EXPECT_TRUE(a.is_done()) << a.status().message();
    EXPECT_TRUE(b.is_done()) << b.status().message();
    EXPECT_EQ(a.session_key(), b.session_key());
    EXPECT_EQ(a.wanted_bytes(), 0u);
  }
}

TEST(Handshake, EveryConnectionHasItsOwnSessionKey) {
  std::set<Secret> keys;
  for (int i = 0; i < 20; ++i) {
    Handshake a = start(Role::kConnector);
    Handshake b = start(Role::kAcceptor);
    carry(a, b);
    keys.insert(a.session_key());
  }
  EXPECT_EQ(keys.size(), 20u);
}

TEST(Handshake, WhatFollowsIsLeftAlone) {
  Handshake a = start(Role::kConnector);
  Handshake b = start(Role::kAcceptor);
  const std::string greeting = a.take_output();
  EXPECT_EQ(greeting.size(), b.wanted_bytes());
  EXPECT_EQ(b.feed(greeting.data(), greeting.size()), greeting.size());
  const std::string answer = b.take_output();
  a.feed(answer.data(), answer.size());
  const std::string proof = a.take_output() + "and what follows";
  EXPECT_EQ(b.feed(proof.data(), proof.size()), sizeof(Secret));
  EXPECT_TRUE(b.is_done());
  EXPECT_EQ(greeting.size() + sizeof(Secret), kHandshakeBytes);
  EXPECT_EQ(b.feed("more", 4), 0u);
}

// Both ends must refuse: the one that is lied to at once, the other one never gets a proof.
void expect_refused(Handshake a, Handshake b, const std::string& words) {
  carry(a, b);
  EXPECT_FALSE(a.is_done());
  EXPECT_FALSE(b.is_done());
  EXPECT_CONTAINS(b.status().message(), words);
}

TEST(Handshake, AnotherKeyOrAnotherContextIsRefused) {
  Secret key = kKey;
  key[31] ^= 1;
  expect_refused(start(Role::kConnector, key), start(Role::kAcceptor), "cannot prove the key");
  expect_refused(start(Role::kConnector, kKey, "link 0->1"),
                 start(Role::kAcceptor, kKey, "link 0->2"), "cannot prove the key");
  expect_refused(start(Role::kConnector, kKey, ""), start(Role::kAcceptor), "cannot prove the key");
}

TEST(Handshake, TheAcceptorShowsNothingOfTheKeyToAStranger) {
  Handshake stranger = start(Role::kConnector, Secret{});
  Handshake acceptor = start(Role::kAcceptor);
  std::string shown = acceptor.take_output();
  std::string said = stranger.take_output();
  acceptor.feed(said.data(), said.size());
  shown += acceptor.take_output();
  stranger.feed(shown.data(), shown.size());
  said = stranger.take_output();
  acceptor.feed(said.data(), said.size());
  EXPECT_FALSE(acceptor.status().ok());
  EXPECT_EQ(acceptor.take_output(), std::string(32, '\0'));
  EXPECT_EQ(shown.size(), 48u) << "more than the greeting";
}

TEST(Handshake, TwoOfOneRoleAreRefused) {
  for (Role role : {Role::kConnector, Role::kAcceptor}) {
    Handshake a = start(role);
    Handshake b = start(role);
    carry(a, b);
    EXPECT_FALSE(a.status().ok());
    EXPECT_FALSE(b.status().ok());
  }
}

TEST(Handshake, ReflectedMessagesAreRefused) {
  for (Role role : {Role::kConnector, Role::kAcceptor}) {
    Handshake victim = start(role);
    const std::string own = victim.take_output();
    victim.feed(own.data(), own.size());
    EXPECT_EQ(victim.status().code(), Code::kRemote);
    EXPECT_CONTAINS(victim.status().message(), "own greeting");
  }
  // With the role changed on the way, the nonce still gives it away; and an own proof that comes
  // back is the other role's.
  Handshake victim = start(Role::kConnector);
  std::string own = victim.take_output();
  own[13] = static_cast<char>(Role::kAcceptor);
  victim.feed(own.data(), own.size());
  EXPECT_EQ(victim.status().code(), Code::kRemote);

  Handshake connector = start(Role::kConnector);
  Handshake acceptor = start(Role::kAcceptor);
  const std::string greeting = acceptor.take_output();
  (void)connector.take_output();
  connector.feed(greeting.data(), greeting.size());
  const std::string proof = connector.take_output();
  connector.feed(proof.data(), proof.size());
  EXPECT_EQ(connector.status().code(), Code::kRemote);
}

TEST(Handshake, ReplayedMessagesOfAnEarlierConnectionAreRefused) {
  Handshake a = start(Role::kConnector);
  Handshake b = start(Role::kAcceptor);
  std::string said_by_a = a.take_output();
  std::string said_by_b = b.take_output();
  a.feed(said_by_b.data(), said_by_b.size());
  b.feed(said_by_a.data(), said_by_a.size());
  said_by_a += a.take_output();
  b.feed(said_by_a.data() + 48, 32);
  said_by_b += b.take_output();
  ASSERT_TRUE(b.is_done());

  Handshake next_b = start(Role::kAcceptor);
  next_b.feed(said_by_a.data(), said_by_a.size());
  EXPECT_EQ(next_b.status().code(), Code::kRemote);
  Handshake next_a = start(Role::kConnector);
  next_a.feed(said_by_b.data(), said_by_b.size());
  EXPECT_EQ(next_a.status().code(), Code::kRemote);
}

TEST(Handshake, AnyChangedBitIsRefused) {
  for (std::size_t bit = 0; bit < 8 * kHandshakeBytes; ++bit) {
    Handshake a = start(Role::kConnector);
    Handshake b = start(Role::kAcceptor);
    std::string to_a = b.take_output();
    a.feed(to_a.data(), to_a.size());
    std::string to_b = a.take_output();
    ASSERT_EQ(to_b.size(), kHandshakeBytes);
    to_b[bit / 8] = static_cast<char>(to_b[bit / 8] ^ (1 << (bit % 8)));
    b.feed(to_b.data(), to_b.size());
    EXPECT_FALSE(b.status().ok()) << "bit " << bit;
  }
}

TEST(Handshake, OtherProtocolsShowInTheirFirstBytes) {
  for (const char* text : {"G", "GET / HTTP/1.1\r\n", "SSH-2.0-x", "\x16\x03\x01", "\x93T_"}) {
    Handshake b = start(Role::kAcceptor);
    b.feed(text, std::string(text).size());
    EXPECT_FALSE(b.is_going()) << text;
    EXPECT_FALSE(b.peer_is_treering());
    EXPECT_CONTAINS(b.status().message(), "does not speak");
  }
}

TEST(Handshake, AnotherVersionOrBuildIsNamed) {
  std::string greeting = start(Role::kConnector).take_output();
  greeting[8] = 9;
  Handshake b = start(Role::kAcceptor);
  b.feed(greeting.data(), greeting.size());
  EXPECT_EQ(b.status().code(), Code::kUnsupported);
  EXPECT_CONTAINS(b.status().message(), "version 9");
  EXPECT_TRUE(b.peer_is_treering());
  greeting = start(Role::kConnector).take_output();
  greeting[12] ^= 1;
  Handshake c = start(Role::kAcceptor);
  c.feed(greeting.data(), greeting.size());
  EXPECT_EQ(c.status().code(), Code::kUnsupported);
  EXPECT_CONTAINS(c.status().message(), "libsodium");
}

TEST(Handshake, RandomBytesNeverGetIn) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    Handshake b = start(random() % 2 != 0 ? Role::kAcceptor : Role::kConnector);
    // Half of them begin as a greeting should.
    std::string text;
    if (random() % 2 != 0)
      text = start(Role(1 + random() % 2)).take_output().substr(0, random() % 49);
    while (text.size() < 200) text += static_cast<char>(random());
    while (!text.empty() && b.is_going()) {
      const std::size_t piece = std::min<std::size_t>(text.size(), 1 + random() % 60);
      text.erase(0, b.feed(text.data(), piece));
    }
    EXPECT_FALSE(b.is_done());
    EXPECT_FALSE(b.status().ok());
  }
}

// HMAC-SHA-512-256 of RFC 4231, test case 2, cut to 256 bits as libsodium's crypto_auth does.
TEST(Secrets, TheKeyedHashIsHmacSha512) {
  if (!has_sodium()) GTEST_SKIP() << "built without libsodium";
  Secret key{};
  std::copy_n("Jefe", 4, key.begin());  // HMAC pads short keys with zeros
  const Secret expected = {0x16, 0x4b, 0x7a, 0x7b, 0xfc, 0xf8, 0x19, 0xe2, 0xe3, 0x95, 0xfb,
                           0xe7, 0x3b, 0x56, 0xe0, 0xa3, 0x87, 0xbd, 0x64, 0x22, 0x2e, 0x83,
                           0x1f, 0xd6, 0x10, 0x27, 0x0c, 0xd7, 0xea, 0x25, 0x05, 0x54};
  EXPECT_EQ(keyed_hash(key, "what do ya want for nothing?"), expected);
}

TEST(Secrets, DerivedKeysDiffer) {
  std::set<Secret> keys{kKey, Secret{}};
  for (const char* purpose : {"a", "b", "ab", ""}) {
    keys.insert(derive_secret(kKey, purpose));
    keys.insert(derive_secret(Secret{}, purpose));
  }
  EXPECT_EQ(keys.size(), 10u);
  EXPECT_EQ(derive_secret(kKey, "a"), derive_secret(kKey, "a"));
  EXPECT_NE(random_secret().value(), random_secret().value());
}

}  // namespace
}  // namespace treering
