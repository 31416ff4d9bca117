// Volume: how many messages and bytes each link carries and each rank sends, for a vector of given
// size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "algos/registry.hpp"
#include "algos/schedule.hpp"
#include "core/link_id.hpp"
#include "core/types.hpp"

namespace treering::explain {

// How the vector is cut. A chunk of zero bytes is no message.
struct Cut {
  std::vector<std::uint64_t> chunk_bytes;
  std::uint64_t vector_bytes =
      0;  // as asked, in whole elements (and equal parts where the caller cuts)
  std::uint64_t slice_bytes = 0;  // the most that one message carries; 0: a whole chunk

  std::uint64_t slices(std::int32_t chunk) const;
  std::uint64_t most_slices() const;
};

// The engine's cut: equal chunks whose borders are multiples of 64 bytes, the last ones shorter.
// Where the caller cuts the vector (all_gather and its like), equal parts; `bytes` is then rounded
// up.
// A barrier's messages have one byte.
Cut cut_vector(const algos::Algorithm& algorithm, int size, std::uint64_t bytes, Type type,
               std::uint64_t slice_bytes, const HostMap* hosts = nullptr);

struct Traffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  void add(const Cut& cut, std::int32_t chunk);
  bool operator==(const Traffic&) const = default;
};

struct LinkTraffic {
  LinkId link;
  Traffic traffic;  // for a cast link: written once, read by every other rank
};

struct RankTraffic {
  Traffic sent;  // to one rank each
  Traffic cast;  // to all other ranks at once: written once
  Traffic received;
  std::uint64_t window_bytes = 0;  // read from or written to peers' buffers directly
};

struct Volume {
  std::vector<LinkTraffic> links;  // sorted by link; zero for those that carry signals only
  std::vector<RankTraffic> ranks;
};

Volume measure(std::span<const algos::Schedule> schedules, const Cut& cut);

// The bytes that all ranks together read and write in memory, buffers and slots, if a message to
// several ranks is stored for each of them (as on a GPU). A part that stays where it is (in place)
// does not count.
std::uint64_t memory_bytes(std::span<const algos::Schedule> schedules, const Cut& cut,
                           bool in_place);

}  // namespace treering::explain
