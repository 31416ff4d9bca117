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

// A scatter and an all-gather: rank r reads chunk r from the root, then every other chunk from the
// rank that has it, so that the root's link carries the vector about twice, not n-1 times. All read
// receive buffers, the root's too: only the root knows where its send buffer lies.
template <class P>
TR_HD void broadcast(P& p) {
  const int n = p.size(), r = p.rank(), root = p.root();
  if (r == root) {
    for (int c = 0; c < n; ++c) p.copy(c);
  }
  p.publish();
  p.await_all();
  if (r != root) p.copy_from(root, out(r), out(r));
  p.publish();
  p.await_all();
  if (r != root) {
    for (int i = 1; i < n; ++i) p.copy_from(mod(r + i, n), out(mod(r + i, n)), out(mod(r + i, n)));
  }
  p.publish();
  p.await_all();
}

// The root reads all parts.
template <class P>
TR_HD void gather(P& p) {
  const int n = p.size(), r = p.rank();
  p.publish();
  if (r == p.root()) p.copy(r);
  p.await_all();
  if (r == p.root()) {
    for (int i = 1; i < n; ++i) p.copy_from(mod(r + i, n), mod(r + i, n));
  }
  p.publish();
  p.await_all();
}

// The root writes all parts: only the root knows where its send buffer lies.
template <class P>
TR_HD void scatter(P& p) {
  const int n = p.size(), r = p.rank();
  p.publish();
  if (r == p.root()) p.copy(r);
  p.await_all();
  if (r == p.root()) {
    for (int i = 1; i < n; ++i) p.copy_to(mod(r + i, n), mod(r + i, n));
  }
  p.publish();
  p.await_all();
}

// What rank q has for rank r is chunk r there and chunk q here. In step i everybody reads from the
// i-th rank after it, so that no two read from the same.
template <class P>
TR_HD void all_to_all(P& p) {
  const int n = p.size(), r = p.rank();
  p.publish();
  p.copy(r);
  p.await_all();
  for (int i = 1; i < n; ++i) p.copy_from(mod(r + i, n), in(r), out(mod(r + i, n)));
  p.publish();
  p.await_all();
}

}  // namespace treering::algos::window
