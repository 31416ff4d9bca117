// Chains in rank order: rank r hears rank r-1 and tells rank r+1; rounds follow each other down the
// chain.
//
// n-1 steps for the first slice, one more for each further one; S bytes sent per rank, the least
// possible. They keep rank order, so they serve large vectors under operators that do not commute.
#pragma once

#include "algos/prims.hpp"

namespace treering::algos::chain {

// What goes on to the next rank is not finished (an average would be divided once per rank), so the
// last step takes the own prefix where it lies. It does nothing for operators that end with the
// fold.
template <class P>
TR_HD void scan(P& p) {
  const int r = p.rank();
  if (r == 0) {
    p.send(0, p.to(1));
    p.copy(0, Last::kYes);
    return;
  }
  if (r < p.size() - 1) {
    p.recv_reduce_copy_send(p.from(r - 1), 0, p.to(r + 1));
    p.copy(out(0), out(0), Last::kYes);
  } else {
    p.recv_reduce_copy(p.from(r - 1), 0, Last::kYes);
  }
}

// What comes in is the result, and with the own input on top it is what goes out: the message is
// used twice. The send comes first: in place, the result overwrites the input.
template <class P>
TR_HD void exscan(P& p) {
  const int r = p.rank();
  if (r == 0) return p.send(0, p.to(1));
  if (r < p.size() - 1) p.recv_reduce_send(p.peek(r - 1), 0, p.to(r + 1));
  p.recv_reduce_copy(p.from(r - 1), Chunk{}, out(0), Last::kYes);
}

// To the highest rank, and from there to the root. The root's second lane waits for the result, so
// that its first lane goes on passing partial folds.
template <class P>
TR_HD void reduce(P& p) {
  const int r = p.rank(), end = p.size() - 1, root = p.root();
  if (p.lane(0)) {
    if (r == 0) {
      p.send(0, p.to(1));
    } else if (r < end) {
      p.recv_reduce_send(p.from(r - 1), 0, p.to(r + 1));
    } else if (root == end) {
      p.recv_reduce_copy(p.from(r - 1), 0, Last::kYes);
    } else {
      p.recv_reduce_send(p.from(r - 1), 0, p.to(root), Last::kYes);
    }
  }
  if (p.lane(1) && r == root && root != end) p.recv(p.from(end), 0);
}

}  // namespace treering::algos::chain
