// Direct algorithms: every rank reads what every other rank has, without relays.
//
// On host memory these are the fastest at every size where the ranks share a node. They fold all
// inputs at one place and in rank order, so their bits depend neither on the partition nor on which
// of them ran, and they serve operators that do not commute.
//
// Casts are one-to-many links: the bytes are written once and read by n-1 ranks.
#pragma once

#include "algos/prims.hpp"

namespace treering::algos::direct {

// One-shot: everyone shows everything to everyone; everyone folds everything. One step of latency,
// n S bytes read per rank: for small vectors.
template <class P>
TR_HD void one_shot_all_reduce(P& p) {
  p.send(0, p.to_all());
  p.recv_reduce_copy(p.from_all_casts(), 0, Last::kYes);
}

// Two-shot: rank q folds chunk q of everyone and shows the result to everyone. Two steps of
// latency, and no rank folds what another folds: for large vectors.
template <class P>
TR_HD void two_shot_all_reduce(P& p) {
  const int n = p.size(), r = p.rank();
  for (int i = 1; i < n; ++i) p.send(mod(r + i, n), p.to(mod(r + i, n)));
  p.recv_reduce_copy_send(p.from_each(), r, p.to_all(), Last::kYes);
  for (int i = 1; i < n; ++i) p.recv(p.from_cast(mod(r + i, n)), mod(r + i, n));
}

// Two-shot over links between two ranks: n-1 times S/n sent where two_shot shows it once, so for
// ranks that one-to-many links do not reach.
template <class P>
TR_HD void all_reduce(P& p) {
  const int n = p.size(), r = p.rank();
  for (int i = 1; i < n; ++i) p.send(mod(r + i, n), p.to(mod(r + i, n)));
  p.recv_reduce_copy_send(p.from_each(), r, p.to_each(), Last::kYes);
  for (int i = 1; i < n; ++i) p.recv(p.from(mod(r + i, n)), mod(r + i, n));
}

template <class P>
TR_HD void reduce_scatter(P& p) {
  const int n = p.size(), r = p.rank();
  for (int i = 1; i < n; ++i) p.send(mod(r + i, n), p.to(mod(r + i, n)));
  p.recv_reduce_copy(p.from_each(), r, Last::kYes);
}

template <class P>
TR_HD void all_gather(P& p) {
  const int n = p.size(), r = p.rank();
  p.send(r, p.to_all());
  p.copy(r);
  for (int i = 1; i < n; ++i) p.recv(p.from_cast(mod(r + i, n)), mod(r + i, n));
}

template <class P>
TR_HD void broadcast(P& p) {
  if (p.rank() == p.root()) {
    p.send(0, p.to_all());
    p.copy(0);
  } else {
    p.recv(p.from_cast(p.root()), 0);
  }
}

template <class P>
TR_HD void reduce(P& p) {
  if (p.rank() == p.root()) {
    p.recv_reduce_copy(p.from_each(), 0, Last::kYes);
  } else {
    p.send(0, p.to(p.root()));
  }
}

template <class P>
TR_HD void gather(P& p) {
  const int n = p.size(), r = p.rank();
  if (r != p.root()) return p.send(r, p.to(p.root()));
  p.copy(r);
  for (int i = 1; i < n; ++i) p.recv(p.from(mod(r + i, n)), mod(r + i, n));
}

template <class P>
TR_HD void scatter(P& p) {
  const int n = p.size(), r = p.rank();
  if (r != p.root()) return p.recv(p.from(p.root()), r);
  for (int i = 1; i < n; ++i) p.send(mod(r + i, n), p.to(mod(r + i, n)));
  p.copy(r);
}

// Rank r folds ranks 0..r.
template <class P>
TR_HD void scan(P& p) {
  const int n = p.size(), r = p.rank();
  if (r < n - 1) p.send(0, p.to_ranks(r + 1, n));
  if (r == 0) {
    p.copy(0, Last::kYes);
  } else {
    p.recv_reduce_copy(p.from_ranks(0, r), 0, Last::kYes);
  }
}

// Rank r folds ranks 0..r-1; rank 0 gets nothing.
template <class P>
TR_HD void exscan(P& p) {
  const int n = p.size(), r = p.rank();
  if (r < n - 1) p.send(0, p.to_ranks(r + 1, n));
  if (r > 0) p.recv_reduce_copy(p.from_ranks(0, r), Chunk{}, out(0), Last::kYes);
}

}  // namespace treering::algos::direct
