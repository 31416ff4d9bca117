// Recursive doubling and recursive halving-doubling: log2 n exchanges with partners at distance 1,
// 2, 4, ...
//
// Sources: algos/power_of_two.hpp. Partners of a step stand for neighbouring blocks of ranks, so
// the folds are in rank order.
#pragma once

#include "algos/power_of_two.hpp"
#include "algos/prims.hpp"

namespace treering::algos {

// Whole vectors are exchanged: log2 n steps, S log2 n bytes sent per rank. For small vectors.
template <class P>
TR_HD void recursive_doubling_all_reduce(P& p) {
  const Fold fold(p.size(), p.rank());
  fold_in(p, fold, 1);
  if (fold.member()) {
    Chunk partial{fold.partial(), 0};
    for (int distance = 1; distance < fold.members; distance *= 2) {
      const int q = fold.rank_of(fold.index() ^ distance);
      p.exchange(p.to(q), partial, p.from(q), partial, 0, 1,
                 distance * 2 == fold.members ? Last::kYes : Last::kNo);
      partial = out(0);
    }
  }
  fold_out(p, fold, 1);
}

// Vector halving, distance doubling: each exchange folds one half of what the previous one left, so
// that a member ends with one complete chunk; then the same way back gathers them. 2 log2 n steps,
// 2(n-1)/n S bytes sent per rank (2(m-1)/m S, and S for a pair of fold_in and fold_out, where m < n
// members).
template <class P>
TR_HD void halving_doubling_all_reduce(P& p) {
  const Fold fold(p.size(), p.rank());
  const int chunks = fold.members;
  fold_in(p, fold, chunks);
  if (fold.member()) {
    // The range [first, first + count) is what this member still folds.
    int first = 0, count = chunks;
    Space partial = fold.partial();
    for (int distance = 1; distance < fold.members; distance *= 2) {
      const bool upper = (fold.index() & distance) != 0;
      const int q = fold.rank_of(fold.index() ^ distance);
      count /= 2;
      const int keep = upper ? first + count : first;
      const int give = upper ? first : first + count;
      p.exchange(p.to(q), Chunk{partial, give}, p.from(q), Chunk{partial, keep}, keep, count,
                 count == 1 ? Last::kYes : Last::kNo);
      first = keep;
      partial = Space::kOut;
    }
    for (int distance = fold.members / 2; distance >= 1; distance /= 2) {
      const bool upper = (fold.index() & distance) != 0;
      const int q = fold.rank_of(fold.index() ^ distance);
      const int theirs = upper ? first - count : first + count;
      for (int i = 0; i < count; ++i) {
        p.send(out(first + i), p.to(q));
        p.recv(p.from(q), theirs + i);
      }
      first = upper ? theirs : first;
      count *= 2;
    }
  }
  fold_out(p, fold, chunks);
}

}  // namespace treering::algos
