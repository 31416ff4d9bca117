// Double binary tree: two trees, each for one half of the vector, pipelined in both directions at
// once.
//
// Source: Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
// scan", Parallel Computing 2009. In one tree half of the ranks are leaves and only send or only
// receive; a second tree in which those ranks are inner nodes puts the idle direction to use.
//
// Their shape is core/double_tree.hpp's: an inner node of one tree is a leaf of the other. With
// ranks as members the fold of a tree is in rank order.
//
// Tree t serves chunk t over channel t, with its own up lane and down lane. Rounds follow each
// other through the tree (pipelined): log2 n + rounds steps. Bytes that a rank sends for a vector
// of S bytes: broadcast and reduce at most S, all_reduce at most 2 S (as an inner node of one tree
// S/2 up and S down, as a leaf of the other S/2 up).
#pragma once

#include "algos/prims.hpp"
#include "core/double_tree.hpp"

namespace treering::algos::tree {

// One member's neighbours in one tree, as members 0..members-1.
struct Node {
  int parent = -1;  // -1: the root
  Peers children;
};

// Positions begin at 1 + shift (0 or 1); those below are empty. So are the positions beyond the
// last one; the left child takes the place of an inner node that is missing there.
TR_HD constexpr Node node(int members, int member, int shift) {
  const int first = 1 + shift, last = members + shift, position = member + first;
  const int low_bit = position & -position;
  Node result;
  result.parent = double_tree::parent(members, member, shift);
  if (low_bit > 1) {
    const int left = position - low_bit / 2;
    if (left >= first) result.children.add(left - first);
    int step = low_bit / 2;
    while (step > 0 && position + step > last) step /= 2;
    if (step > 0) result.children.add(position + step - first);
  }
  return result;
}

using double_tree::root_member;

// Up: children -> node -> parent, folding; down: parent -> node -> children. Where they meet, at
// the tree's root, the fold is complete and turns around.
template <class P>
TR_HD void all_reduce(P& p) {
  for (int t = 0; t < 2; ++t) {
    const Node me = node(p.size(), p.rank(), t);
    const bool leaf = me.children.count == 0;
    if (p.lane(2 * t)) {
      if (me.parent < 0) {
        p.recv_reduce_copy_send(p.from(me.children, t), t, p.to(me.children, t), Last::kYes);
      } else if (leaf) {
        p.send(t, p.to(me.parent, t));
      } else {
        p.recv_reduce_send(p.from(me.children, t), t, p.to(me.parent, t));
      }
    }
    if (p.lane(2 * t + 1) && me.parent >= 0) {
      if (leaf) {
        p.recv(p.from(me.parent, t), t);
      } else {
        p.recv_copy_send(p.from(me.parent, t), t, p.to(me.children, t));
      }
    }
  }
}

// Of broadcast and reduce the members are the ranks other than the root, counted from it; the root
// feeds, or hears, the roots of both trees.
template <class P>
TR_HD Node node_without_root(const P& p, int t) {
  Node me = node(p.size() - 1, mod(p.rank() - p.root() - 1, p.size()), t);
  const auto rank_of = [&](int member) { return mod(p.root() + 1 + member, p.size()); };
  me.parent = me.parent < 0 ? p.root() : rank_of(me.parent);
  for (int i = 0; i < me.children.count; ++i) me.children.rank[i] = rank_of(me.children.rank[i]);
  return me;
}

template <class P>
TR_HD int tree_root(const P& p, int t) {
  return mod(p.root() + 1 + root_member(p.size() - 1, t), p.size());
}

template <class P>
TR_HD void broadcast(P& p) {
  for (int t = 0; t < 2; ++t) {
    if (!p.lane(t)) continue;
    if (p.rank() == p.root()) {
      p.send(t, p.to(tree_root(p, t), t));
      p.copy(t);
      continue;
    }
    const Node me = node_without_root(p, t);
    if (me.children.count == 0) {
      p.recv(p.from(me.parent, t), t);
    } else {
      p.recv_copy_send(p.from(me.parent, t), t, p.to(me.children, t));
    }
  }
}

template <class P>
TR_HD void reduce(P& p) {
  for (int t = 0; t < 2; ++t) {
    if (!p.lane(t)) continue;
    if (p.rank() == p.root()) {
      p.recv_reduce_copy(p.from(tree_root(p, t), t), t, Last::kYes);
      continue;
    }
    const Node me = node_without_root(p, t);
    if (me.children.count == 0) {
      p.send(t, p.to(me.parent, t));
    } else {
      p.recv_reduce_send(p.from(me.children, t), t, p.to(me.parent, t));
    }
  }
}

}  // namespace treering::algos::tree
