// Point to point: a send to rank root(), and the receive that the peer matches it with.
//
// S bytes, 1 step. They have links of their own, so that they need no order with collectives.
#pragma once

#include "algos/prims.hpp"

namespace treering::algos::point_to_point {

template <class P>
TR_HD void send(P& p) {
  p.send(0, p.to(p.root()));
}

template <class P>
TR_HD void recv(P& p) {
  p.recv(p.from(p.root()), 0);
}

}  // namespace treering::algos::point_to_point
