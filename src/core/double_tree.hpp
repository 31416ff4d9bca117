// The shape of the double binary tree (Sanders, Speck, Traeff 2009): two in-order trees over
// members 0, 1, ...: the left subtree of a node holds lower positions, the right subtree higher
// ones. The lowest one bit of a position says how high it stands, so the odd positions are the
// leaves. Tree 0 gives member i position i+1; tree 1 gives it position i+2 and leaves position 1
// empty: an inner node of one tree is a leaf of the other.
#pragma once

#include "core/macros.hpp"

namespace treering::double_tree {

// The root of a tree over the positions 1..last: the highest power of two.
TR_HD constexpr int root_position(int last) {
  int top = 1;
  while (top * 2 <= last) top *= 2;
  return top;
}

TR_HD constexpr int root_member(int members, int shift) {
  return root_position(members + shift) - 1 - shift;
}

// The member above; -1: it is the root. shift: 0 or 1, the tree. Positions beyond the last one are
// empty: who would stand below one stands below the next node that is there.
TR_HD constexpr int parent(int members, int member, int shift) {
  const int first = 1 + shift, last = members + shift, position = member + first;
  if (position == root_position(last)) return -1;
  int above = position, step = position & -position;
  do {
    above = (above - step) | (step * 2);
    step *= 2;
  } while (above > last);
  return above - first;
}

}  // namespace treering::double_tree
