// Zero-copy direct algorithms on registered memory: ranks read each other's inputs and write each
// other's outputs in place; links carry only "my buffers are ready" and "I am done with yours".
#pragma once

#include "algos/prims.hpp"

namespace treering::algos::window {

// Rank r folds chunk r straight from all inputs and stores it straight into all outputs.
template <class P>
TR_HD void two_shot_all_reduce(P& p) {
  p.publish();
  p.await_all();
  p.reduce_store_all(p.rank(), Last::kYes);
  p.publish();
  p.await_all();
}

// Every rank folds everything from all inputs, and stores to nobody else: no peer's store is waited
// for. (In place a rank would overwrite what others still read.)
template <class P>
TR_HD void one_shot_all_reduce(P& p) {
  p.publish();
  p.await_all();
  p.reduce_from_all(0, Last::kYes);
  p.publish();
  p.await_all();
}

template <class P>
TR_HD void reduce_scatter(P& p) {
  p.publish();
  p.await_all();
  p.reduce_from_all(p.rank(), Last::kYes);
  p.publish();
  p.await_all();
}

template <class P>
TR_HD void all_gather(P& p) {
  const int n = p.size(), r = p.rank();
  p.publish();
  p.copy(r);
  p.await_all();
  for (int i = 1; i < n; ++i) p.copy_from(mod(r + i, n), mod(r + i, n));
  p.publish();
  p.await_all();
}

}  // namespace treering::algos::window
