// Pairwise all-to-all: every pair of ranks exchanges its two parts directly, all pairs at once.
//
// (n-1)/n S bytes sent per rank, which is the least possible; n-1 messages. One lane per peer: no
// pair waits for another. Within a lane the part for a peer is sent before the peer's part takes
// its place, so that it works in place.
#pragma once

#include "algos/prims.hpp"

namespace treering::algos::pairwise {

template <class P>
TR_HD void all_to_all(P& p) {
  const int n = p.size(), r = p.rank();
  if (p.lane(0)) p.copy(r);
  for (int i = 1; i < n; ++i) {
    if (!p.lane(i)) continue;
    // Every rank begins with another peer.
    const int q = mod(r + i, n);
    p.send(q, p.to(q));
    p.recv(p.from(q), q);
  }
}

}  // namespace treering::algos::pairwise
