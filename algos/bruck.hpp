// Bruck's algorithms: log2 n steps for any n, at distances 1, 2, 4, ...
//
// Source: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications
// in multiport message-passing systems", IEEE TPDS 1997. Every chunk is received at its final
// place, so that the rotations of the paper fall away.
#pragma once

#include "algos/prims.hpp"

namespace treering::algos::bruck {

// After the step at distance d a rank holds the chunks of the 2d ranks from itself on. (n-1)/n S
// bytes.
template <class P>
TR_HD void all_gather(P& p) {
  const int n = p.size(), r = p.rank();
  p.copy(r);
  for (int distance = 1; distance < n; distance *= 2) {
    const auto below = p.to(mod(r - distance, n));
    const auto above = p.from(mod(r + distance, n));
    for (int i = 0; i < distance && distance + i < n; ++i) {
      p.send(out(mod(r + i, n)), below);
      p.recv(above, mod(r + distance + i, n));
    }
  }
}

// The block for rank r + i travels the distance i in powers of two, lowest first, so that it passes
// every rank where i has a one bit: log2 n steps of n/2 blocks each. A rank keeps the block with
// distance i at out chunk r - i, where the block belongs once it has come home.
template <class P>
TR_HD void all_to_all(P& p) {
  const int n = p.size(), r = p.rank();
  p.copy(r);
  for (int distance = 1; distance < n; distance *= 2) {
    const auto above = p.to(mod(r + distance, n));
    const auto below = p.from(mod(r - distance, n));
    for (int i = distance; i < n; ++i) {
      if ((i & distance) == 0) continue;
      const bool first_hop = (i & (distance - 1)) == 0;
      const int place = mod(r - i, n);
      p.send(first_hop ? in(mod(r + i, n)) : out(place), above);
      p.recv(below, place);
    }
  }
}

}  // namespace treering::algos::bruck
