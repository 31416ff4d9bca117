// Barriers: no rank leaves before all have come. Chunk 0 is one byte and means nothing.
#pragma once

#include "algos/prims.hpp"

namespace treering::algos::barrier {

// Source: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", 1988. After the
// step at distance d a rank knows that the 2d ranks up to itself have come; log2 n steps.
template <class P>
TR_HD void dissemination(P& p) {
  const int n = p.size(), r = p.rank();
  for (int distance = 1; distance < n; distance *= 2) {
    p.send(0, p.to(mod(r + distance, n)));
    p.recv(p.from(mod(r - distance, n)), 0);
  }
}

// Everyone tells everyone: one step; n-1 messages are read by each rank.
template <class P>
TR_HD void direct(P& p) {
  const int n = p.size(), r = p.rank();
  p.send(0, p.to_all());
  for (int i = 1; i < n; ++i) p.recv(p.from_cast(mod(r + i, n)), 0);
}

}  // namespace treering::algos::barrier
