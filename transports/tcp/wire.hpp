// What goes over a connection between two ranks once both ends have proved who they are.
//
// Data connections carry frames, each followed by `bytes` bytes of payload. LINKS.md, section 7,
// has the rules. Numbers are little-endian, as on every machine that the library runs on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/link_id.hpp"

namespace treering::tcp {

static_assert(std::endian::native == std::endian::little);

// The links from one rank to another: pairs of both channels, send/recv, and the writer's cast.
inline constexpr int kLinks = kPairChannels + 2;

constexpr int index_of(const LinkId& id) {
  if (id.kind == LinkId::Kind::kPair) return id.channel;
  return id.kind == LinkId::Kind::kSendRecv ? kPairChannels : kPairChannels + 1;
}
constexpr LinkId link_of(int index, int src, int dst) {
  if (index < kPairChannels)
    return {LinkId::Kind::kPair, static_cast<std::uint8_t>(index), src, dst};
  if (index == kPairChannels) return {LinkId::Kind::kSendRecv, 0, src, dst};
  return {LinkId::Kind::kCast, 0, src, -1};
}

enum class FrameKind : std::uint16_t {
  kMessage = 1,  // of a link that the sender writes
  kCredit = 2,   // of a link that the sender reads: it has released all messages below `number`
};

struct Frame {
  FrameKind kind;
  std::uint16_t link;        // index_of
  std::uint32_t bytes;       // of the payload that follows
  std::uint32_t slot_bytes;  // of a message longer than a line: the geometry of its slots
  std::uint32_t checksum;    // of the payload, with TR_CHECKSUM; else 0
  std::uint64_t number;
  std::uint64_t signature;
};
static_assert(sizeof(Frame) == 32);

}  // namespace treering::tcp
