// Binomial trees: log2 n steps.
//
// Source: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice,
// and experience", Concurrency and Computation 2007.
//
// Places are ranks counted from the root: place v = rank - root. The subtree of v is the range from
// v up to v + lowest one bit of v; the children of v stand at v + 1, v + 2, v + 4, ... in that
// range. Inner nodes relay from link to link and need no buffer for their subtree.
#pragma once

#include "algos/prims.hpp"

namespace treering::algos::binomial {

struct Place {
  int size, root, v;

  TR_HD constexpr Place(int n, int rank, int root_rank)
      : size(n), root(root_rank), v(mod(rank - root_rank, n)) {}
  TR_HD constexpr int rank_of(int place) const { return mod(root + place, size); }
  TR_HD constexpr int lowest_bit() const { return v & -v; }
  TR_HD constexpr int parent() const { return rank_of(v - lowest_bit()); }
  // One past the last place of the subtree.
  TR_HD constexpr int end() const {
    return v == 0 || v + lowest_bit() > size ? size : v + lowest_bit();
  }
  // The child whose subtree holds place w, v < w < end().
  TR_HD constexpr int child_to(int w) const {
    int step = 1;
    while (step * 2 <= w - v) step *= 2;
    return rank_of(v + step);
  }
};

// The farthest subtree first, for it takes the longest.
template <class P>
TR_HD void broadcast(P& p) {
  const Place me(p.size(), p.rank(), p.root());
  int step = 1;
  while (me.v + step * 2 < me.end()) step *= 2;
  const bool leaf = me.v + 1 >= me.end();
  if (me.v == 0) {
    p.send(0, p.to(me.rank_of(step)));
  } else if (leaf) {
    p.recv(p.from(me.parent()), 0);
  } else {
    p.recv_copy_send(p.from(me.parent()), 0, p.to(me.rank_of(me.v + step)));
  }
  if (!leaf) {
    for (step /= 2; step > 0; step /= 2) {
      p.send(me.v == 0 ? in(0) : out(0), p.to(me.rank_of(me.v + step)));
    }
  }
  if (me.v == 0) p.copy(0);
}

// A subtree's parts come from the lowest place to the highest: its own root's first.
template <class P>
TR_HD void gather(P& p) {
  const Place me(p.size(), p.rank(), p.root());
  if (me.v == 0) {
    p.copy(p.rank());
  } else {
    p.send(p.rank(), p.to(me.parent()));
  }
  for (int w = me.v + 1; w < me.end(); ++w) {
    const auto child = p.from(me.child_to(w));
    if (me.v == 0) {
      p.recv(child, me.rank_of(w));
    } else {
      p.recv_send(child, me.rank_of(w), p.to(me.parent()));
    }
  }
}

// From the highest place to the lowest: the farthest part first, the own one last.
template <class P>
TR_HD void scatter(P& p) {
  const Place me(p.size(), p.rank(), p.root());
  for (int w = me.end() - 1; w > me.v; --w) {
    const auto child = p.to(me.child_to(w));
    if (me.v == 0) {
      p.send(me.rank_of(w), child);
    } else {
      p.recv_send(p.from(me.parent()), me.rank_of(w), child);
    }
  }
  if (me.v == 0) {
    p.copy(p.rank());
  } else {
    p.recv(p.from(me.parent()), p.rank());
  }
}

}  // namespace treering::algos::binomial
