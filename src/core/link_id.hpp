// The name of a link: a one-direction FIFO between ranks of one communicator.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace treering {

// kPair: src -> dst. kCast: src -> every other rank (dst = -1): one writer, each reader with its
// own head. kSendRecv: src -> dst, for tr_send and tr_recv only, so that they need not be ordered
// with collectives. Trees that share a pair of ranks use different channels.
struct LinkId {
  enum class Kind : std::uint8_t { kPair, kCast, kSendRecv };
  Kind kind = Kind::kPair;
  std::uint8_t channel = 0;
  std::int32_t src = -1;
  std::int32_t dst = -1;
  auto operator<=>(const LinkId&) const = default;
};

inline constexpr int kPairChannels = 2;

std::string to_string(const LinkId& id);  // "2->3", "2->all", "2->3 channel 1", "2->3 send/recv"

}  // namespace treering
