// Where everything lies in a rank's segment. A pure function of the number of ranks and the link
// sizes, so every rank knows the layout of every segment without asking. LINKS.md draws it.
//
//   Board | control blocks of all links | data areas of all links
//
// A rank's segment holds the links that this rank WRITES. A control block is kFifoLines lines and
// then the readers' heads; blocks are packed, because most links need no more than theirs. Data
// areas begin on pages, so that a link that is never used never costs one. There is a place for the
// pair link to oneself, which does not exist: its addresses cost nothing and keep the layout the
// same for every rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/link_id.hpp"
#include "transports/board.hpp"
#include "transports/fifo.hpp"

namespace treering::shm {

inline constexpr std::size_t kPageBytes = 4096;
// Two cache lines: neighbouring lines are fetched in pairs, and a reader's head must not be fetched
// together with another link's lines.
inline constexpr std::size_t kControlAlign = 128;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Bytes of slot data per link of each kind.
struct LinkSizes {
  std::size_t pair = 0;
  std::size_t cast = 0;
  std::size_t sendrecv = 0;
  constexpr std::size_t of(LinkId::Kind kind) const {
    return kind == LinkId::Kind::kPair ? pair : kind == LinkId::Kind::kCast ? cast : sendrecv;
  }
};

// One link's place in the segment of its writer, in bytes from the segment's start.
struct LinkPlace {
  std::size_t lines = 0;
  std::size_t heads = 0;
  std::size_t end_of_heads = 0;
  std::size_t data = 0;
  std::size_t data_bytes = 0;
};

class Layout {
 public:
  constexpr Layout(int ranks, const LinkSizes& sizes)
      : ranks_(static_cast<std::size_t>(ranks)),
        sizes_{round_up(sizes.pair, kPageBytes), round_up(sizes.cast, kPageBytes),
               round_up(sizes.sendrecv, kPageBytes)} {}

  constexpr const LinkSizes& sizes() const { return sizes_; }

  // Is this a link of the communicator at all?
  constexpr bool contains(const LinkId& id) const {
    const auto is_rank = [this](std::int32_t r) {
      return r >= 0 && static_cast<std::size_t>(r) < ranks_;
    };
    if (!is_rank(id.src)) return false;
    switch (id.kind) {
      case LinkId::Kind::kPair:
        return is_rank(id.dst) && id.dst != id.src && id.channel < kPairChannels;
      case LinkId::Kind::kSendRecv:
        return is_rank(id.dst) && id.channel == 0;
      case LinkId::Kind::kCast:
        return id.dst == -1 && id.channel == 0;
    }
    return false;
  }

  // Requires contains(id).
  constexpr LinkPlace place(const LinkId& id) const {
    const std::size_t index = index_of(id);
    LinkPlace place;
    place.lines =
        control_offset() + index * kNarrowBytes;  // the cast, the only wide block, is last
    place.heads = place.lines + kLinesBytes;
    const std::size_t heads = id.kind == LinkId::Kind::kCast ? ranks_ : 1;
    place.end_of_heads = place.heads + heads * sizeof(FifoHead);
    const std::size_t pairs = ranks_ * kPairChannels;
    place.data = data_offset() + index * sizes_.pair;
    if (index >= pairs)
      place.data = data_offset() + pairs * sizes_.pair + (index - pairs) * sizes_.sendrecv;
    place.data_bytes = sizes_.of(id.kind);
    return place;
  }

  constexpr std::size_t bytes() const {
    return data_offset() + ranks_ * (kPairChannels * sizes_.pair + sizes_.sendrecv) + sizes_.cast;
  }

 private:
  static constexpr std::size_t kLinesBytes = kFifoLines * sizeof(FifoLine);
  static constexpr std::size_t kNarrowBytes =
      round_up(kLinesBytes + sizeof(FifoHead), kControlAlign);

  // Pair links by reader and channel, then send/recv links by reader, then the cast.
  constexpr std::size_t index_of(const LinkId& id) const {
    const auto dst = static_cast<std::size_t>(id.dst < 0 ? 0 : id.dst);
    switch (id.kind) {
      case LinkId::Kind::kPair:
        return dst * kPairChannels + id.channel;
      case LinkId::Kind::kSendRecv:
        return ranks_ * kPairChannels + dst;
      case LinkId::Kind::kCast:
        break;
    }
    return ranks_ * (kPairChannels + 1);
  }
  static constexpr std::size_t control_offset() { return round_up(sizeof(Board), kControlAlign); }
  constexpr std::size_t data_offset() const {
    const std::size_t narrow = ranks_ * (kPairChannels + 1) * kNarrowBytes;
    const std::size_t wide = kLinesBytes + ranks_ * sizeof(FifoHead);
    return round_up(control_offset() + narrow + wide, kPageBytes);
  }

  std::size_t ranks_;
  LinkSizes sizes_;
};

}  // namespace treering::shm
