// Collectives over one rank: nothing to do but the copy from the send to the receive buffer.
#pragma once

#include "algos/prims.hpp"

namespace treering::algos::local {

// A fold over one rank is complete at once.
template <class P>
TR_HD void fold(P& p) {
  p.copy(0, Last::kYes);
}

template <class P>
TR_HD void move(P& p) {
  p.copy(0);
}

// barrier; exscan, whose rank 0 gets nothing.
template <class P>
TR_HD void nothing(P&) {}

}  // namespace treering::algos::local
