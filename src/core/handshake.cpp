#include "core/handshake.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace treering {
namespace {

// The first byte is no letter, so that no text protocol begins so, and a peer that speaks one is
// recognised by its first bytes.
constexpr std::array<char, 8> kHandshakeMagic = {'\x93', 'T', 'R', 'E', 'E', 'R', 'N', 'G'};
constexpr std::uint32_t kHandshakeVersion = 1;

std::string_view bytes_of(const auto& object) {
  return {reinterpret_cast<const char*>(&object), sizeof object};
}

}  // namespace

Result<Handshake> Handshake::start(Role role, const Secret& key, std::string_view context) {
  TR_ASSIGN_OR_RETURN(const Secret nonce, random_secret());
  return Handshake(role, key, context, nonce);
}

Handshake::Handshake(Role role, const Secret& key, std::string_view context, const Secret& nonce)
    : role_(role),
      key_(key),
      context_(context),
      own_{kHandshakeMagic,
           kHandshakeVersion,
           has_sodium(),
           static_cast<std::uint8_t>(role),
           {},
           nonce},
      output_(bytes_of(own_)) {}

std::string Handshake::take_output() { return std::exchange(output_, {}); }

std::size_t Handshake::wanted_bytes() const {
  switch (state_) {
    case State::kGreeting:
      return sizeof(Greeting) - input_bytes_;
    case State::kProof:
      return sizeof(Secret) - input_bytes_;
    case State::kDone:
    case State::kFailed:
      break;
  }
  return 0;
}

std::size_t Handshake::feed(const void* data, std::size_t bytes) {
  std::size_t used = 0;
  while (used < bytes && is_going()) {
    const std::size_t part = std::min(wanted_bytes(), bytes - used);
    std::memcpy(input_.data() + input_bytes_, static_cast<const char*>(data) + used, part);
    input_bytes_ += part;
    used += part;
    // What is no greeting of ours shows in its first bytes; it may never send more of them.
    const std::size_t magic = std::min(input_bytes_, kHandshakeMagic.size());
    if (state_ == State::kGreeting &&
        std::memcmp(input_.data(), kHandshakeMagic.data(), magic) != 0) {
      fail(remote_error("the peer does not speak Treering's protocol"));
      break;
    }
    if (wanted_bytes() > 0) break;
    input_bytes_ = 0;
    state_ == State::kGreeting ? on_greeting() : on_proof();
  }
  return used;
}

void Handshake::on_greeting() {
  std::memcpy(&peer_, input_.data(), sizeof peer_);
  peer_is_treering_ = true;
  if (peer_.version != kHandshakeVersion) {
    return fail(unsupported("the peer speaks version " + std::to_string(peer_.version) +
                            " of the handshake, this library version " +
                            std::to_string(kHandshakeVersion) + ": use one version in all ranks"));
  }
  if (peer_.hash != own_.hash) {
    const auto build = [](bool sodium) { return sodium ? "with libsodium" : "without libsodium"; };
    return fail(unsupported(std::string("the peer's library was built ") + build(peer_.hash != 0) +
                            ", this one " + build(own_.hash != 0) +
                            ": use one build in all ranks"));
  }
  if (peer_.role == own_.role || peer_.nonce == own_.nonce) {
    return fail(
        remote_error("the peer sends this end's own greeting back, or took it for the "
                     "other end"));
  }
  state_ = State::kProof;
  if (role_ == Role::kConnector) output_ += bytes_of(proof_of(role_, "proof"));
}

void Handshake::on_proof() {
  const Role peer_role = role_ == Role::kConnector ? Role::kAcceptor : Role::kConnector;
  Secret proof;
  std::memcpy(proof.data(), input_.data(), proof.size());
  if (!equal_in_constant_time(proof, proof_of(peer_role, "proof"))) {
    fail(remote_error(
        "the peer cannot prove the key: it belongs to another job, or to another part of this "
        "one, or its secret differs"));
    if (role_ == Role::kAcceptor) output_ = bytes_of(Secret{});
    return;
  }
  state_ = State::kDone;
  if (role_ == Role::kAcceptor) output_ += bytes_of(proof_of(role_, "proof"));
}

void Handshake::fail(Status status) {
  status_ = std::move(status);
  state_ = State::kFailed;
  output_.clear();
}

// Every part but the last has a fixed size, so that no two lists of parts are the same bytes.
Secret Handshake::proof_of(Role role, std::string_view purpose) const {
  std::string message = "treering handshake ";
  message += static_cast<char>(purpose.size());
  message += purpose;
  message += static_cast<char>(role);
  message += bytes_of(greeting_of(Role::kConnector));
  message += bytes_of(greeting_of(Role::kAcceptor));
  message += context_;
  return keyed_hash(key_, message);
}

Secret Handshake::session_key() const { return proof_of(Role::kConnector, "session"); }

}  // namespace treering
