// The step that the algorithms for powers of two share: ranks beyond the largest power of two fold
// their vector into a neighbour's at the start and get the result from it at the end.
//
// Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; Thakur,
// Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005.
#pragma once

#include "algos/prims.hpp"

namespace treering::algos {

TR_HD constexpr int largest_power_of_two(int n) {
  int power = 1;
  while (power * 2 <= n) power *= 2;
  return power;
}

// Who takes part in the power-of-two part. Of the first 2 * (size - members) ranks the even ones
// do, each for itself and the odd rank above it, and so do all the others: members are in rank
// order, and so are the ranks that each of them stands for.
struct Fold {
  int members;  // largest power of two <= size
  int extra;    // size - members
  int rank;     // own

  TR_HD constexpr Fold(int size, int own)
      : members(largest_power_of_two(size)), extra(size - members), rank(own) {}
  TR_HD constexpr bool paired() const { return rank < 2 * extra; }
  TR_HD constexpr bool member() const { return !paired() || rank % 2 == 0; }
  TR_HD constexpr int partner() const { return rank ^ 1; }                          // if paired
  TR_HD constexpr int index() const { return paired() ? rank / 2 : rank - extra; }  // if a member
  TR_HD constexpr int rank_of(int index) const { return index < extra ? 2 * index : index + extra; }
  // Where a member's partial result lies before the first exchange.
  TR_HD constexpr Space partial() const { return paired() ? Space::kOut : Space::kIn; }
};

template <class P>
TR_HD void fold_in(P& p, const Fold& fold, int chunks) {
  if (!fold.paired()) return;
  for (int c = 0; c < chunks; ++c) {
    if (fold.member()) {
      p.recv_reduce_copy(p.from(fold.partner()), c);
    } else {
      p.send(c, p.to(fold.partner()));
    }
  }
}

template <class P>
TR_HD void fold_out(P& p, const Fold& fold, int chunks) {
  if (!fold.paired()) return;
  for (int c = 0; c < chunks; ++c) {
    if (fold.member()) {
      p.send(out(c), p.to(fold.partner()));
    } else {
      p.recv(p.from(fold.partner()), c);
    }
  }
}

}  // namespace treering::algos
