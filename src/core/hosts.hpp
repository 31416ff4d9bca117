// Hosts: which ranks share a host, as algorithms see it. A view without memory of its own, so that
// a kernel can have it, too; core/host_map.hpp owns what it points to.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace treering {

// Hosts are numbered in the order of their lowest ranks; a host's ranks are its members 0, 1, ...
// in ascending order. Any rank may be on any host.
struct Hosts {
  std::int32_t count = 0;
  std::int32_t most = 0;                  // the most members of a host
  const std::int32_t* host = nullptr;     // [rank]
  const std::int32_t* place = nullptr;    // [rank]: which member of its host it is
  const std::int32_t* first = nullptr;    // [host], [count]: where its members begin in `members`
  const std::int32_t* members = nullptr;  // ranks, host by host

  TR_HD constexpr int host_of(int rank) const { return host[rank]; }
  TR_HD constexpr int member_of(int rank) const { return place[rank]; }
  TR_HD constexpr int members_of(int h) const { return first[h + 1] - first[h]; }
  TR_HD constexpr int rank_of(int h, int member) const { return members[first[h] + member]; }
};

}  // namespace treering
