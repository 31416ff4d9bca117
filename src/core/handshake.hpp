// Handshake: two ends of a connection prove to each other that they know a key, before either of
// them interprets anything else that the other one says.
//
// Bytes go in, bytes come out: no socket, no clock, no wait. Who owns the socket sends what
// take_output() gives, hands what arrives to feed(), and gives up when its own deadline passes.
//
//   Handshake h = ...start(Handshake::Role::kConnector, key, "link 2->3").value();
//   send(h.take_output());
//   while (h.is_going()) { n = recv(fd, buffer, h.wanted_bytes()); h.feed(buffer, n); send(...); }
//   if (!h.status().ok()) close it;
//
// The three messages:
//   both ways            Greeting, at once: magic, version, kind of hash, role, 32 random bytes
//   connector->acceptor  proof: keyed hash of (role, both greetings, context)
//   acceptor->connector  proof, likewise
// The acceptor answers with nothing that depends on the key before the connector has proved it, so
// a port scanner gets nothing to guess keys by; to a wrong proof it answers with zeros, so that an
// honest peer of another job need not wait. A proof holds for one pair of greetings, one role
// and one context: replayed or reflected messages, those of another connection, and those of an
// end that means another thing (`context`) fail. Sizes are fixed; a message is never longer than
// kHandshakeMaxMessageBytes. The context need not be secret and is not sent.
//
// What it does not do: hide or protect what is sent after it. session_key() is for that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/secret.hpp"
#include "core/status.hpp"

namespace treering {

inline constexpr std::size_t kHandshakeMaxMessageBytes = 48;
// What an end receives until it is done, and sends.
inline constexpr std::size_t kHandshakeBytes = 48 + 32;

// A value; one thread at a time.
class Handshake {
 public:
  enum class Role : std::uint8_t { kConnector = 1, kAcceptor = 2 };

  // kSystem: no random bytes.
  static Result<Handshake> start(Role role, const Secret& key, std::string_view context);

  // What is to be sent now, at most once for each message; empty: nothing. Worth sending after a
  // failure too.
  std::string take_output();

  // Takes what has arrived; returns how many bytes it used: all, or those up to the handshake's end
  // or failure. The rest is what follows.
  std::size_t feed(const void* data, std::size_t bytes);
  // Bytes that are missing of the message that is awaited; 0 when it is over.
  std::size_t wanted_bytes() const;

  bool is_going() const { return state_ != State::kDone && state_ != State::kFailed; }
  // The peer has proved the key. An acceptor's last proof may still be in take_output().
  bool is_done() const { return state_ == State::kDone; }
  // Why it failed, ok otherwise. kRemote: what is there is no Treering, has another key, or means
  // another thing; kUnsupported: another version or kind of build. peer_is_treering() tells the
  // first case from the others.
  const Status& status() const { return status_; }
  // The greeting was one of ours, of whatever version.
  bool peer_is_treering() const { return peer_is_treering_; }

  // The same at both ends, different for each connection, known to nobody without the key.
  // Requires is_done().
  Secret session_key() const;

 private:
  enum class State : std::uint8_t { kGreeting, kProof, kDone, kFailed };
  struct Greeting {
    std::array<char, 8> magic;
    std::uint32_t version;  // little-endian
    std::uint8_t hash;      // 1: with libsodium, 0: without
    std::uint8_t role;
    std::array<unsigned char, 2> zeros;
    Secret nonce;
  };
  static_assert(sizeof(Greeting) == kHandshakeMaxMessageBytes);

  Handshake(Role role, const Secret& key, std::string_view context, const Secret& nonce);
  void on_greeting();
  void on_proof();
  void fail(Status status);
  Secret proof_of(Role role, std::string_view purpose) const;
  const Greeting& greeting_of(Role role) const { return role == role_ ? own_ : peer_; }

  Role role_;
  State state_ = State::kGreeting;
  bool peer_is_treering_ = false;
  Secret key_;
  std::string context_;
  Greeting own_;
  Greeting peer_{};
  std::array<unsigned char, kHandshakeMaxMessageBytes> input_{};
  std::size_t input_bytes_ = 0;
  std::string output_;
  Status status_;
};

}  // namespace treering
