// All-reduces over machines of equal ranks, in the shape that NCCL's have (program.hpp). `each`
// ranks are on a machine, one after the other; `channels` copies take a part of the vector each.
//
// Sources: Jeaugey, "Massively scale your deep learning training with NCCL 2.4", 2019 (the trees
// over machines, chains inside); Patarasuk, Yuan 2009 (the ring).
#pragma once

#include "algos/prims.hpp"
#include "algos/tree.hpp"

namespace treering::sim {

// Channel c enters a machine at its rank c and leaves it at rank c - 1.
template <class P>
void rail_ring_all_reduce(P& p, int each, int channels) {
  using algos::mod;
  const int n = p.size(), machine = p.rank() / each, local = p.rank() % each;
  for (int c = 0; c < channels; ++c) {
    if (!p.lane(c)) continue;
    const auto rank_at = [&](int place) {
      const int i = mod(place, n);
      return i / each * each + (i % each + c) % each;
    };
    const int me = machine * each + mod(local - c, each);  // place in the ring
    const auto left = p.from(rank_at(me - 1), c);
    const auto right = p.to(rank_at(me + 1), c);
    const auto chunk = [&](int i) { return c * n + mod(me - i, n); };
    p.send(chunk(1), right);
    for (int i = 2; i < n; ++i) p.recv_reduce_send(left, chunk(i), right);
    p.recv_reduce_copy_send(left, chunk(0), right, algos::Last::kYes);
    for (int i = 1; i < n - 1; ++i) p.recv_copy_send(left, chunk(i), right);
    p.recv(left, chunk(-1));
  }
}

// Of a machine, rank c (mod each) is in the trees of channel c; the others hang below it in a
// chain.
template <class P>
void chain_tree_all_reduce(P& p, int each, int channels) {
  using algos::mod;
  const int machines = p.size() / each, machine = p.rank() / each, local = p.rank() % each;
  for (int t = 0; t < 2 * channels; ++t) {
    const int head = t / 2 % each, place = mod(local - head, each);
    const auto in_chain = [&](int i) { return machine * each + (head + i) % each; };
    algos::Peers below;
    int above = -1;
    if (place + 1 < each) below.add(in_chain(place + 1));
    if (place > 0) {
      above = in_chain(place - 1);
    } else {
      const algos::tree::Node node = algos::tree::node(machines, machine, t % 2);
      for (int i = 0; i < node.children.count; ++i) {
        below.add(node.children.rank[i] * each + head);
      }
      if (node.parent >= 0) above = node.parent * each + head;
    }
    const bool leaf = below.count == 0;
    if (p.lane(2 * t)) {
      if (above < 0) {
        p.recv_reduce_copy_send(p.from(below, t), t, p.to(below, t), algos::Last::kYes);
      } else if (leaf) {
        p.send(t, p.to(above, t));
      } else {
        p.recv_reduce_send(p.from(below, t), t, p.to(above, t));
      }
    }
    if (p.lane(2 * t + 1) && above >= 0) {
      if (leaf) {
        p.recv(p.from(above, t), t);
      } else {
        p.recv_copy_send(p.from(above, t), t, p.to(below, t));
      }
    }
  }
}

}  // namespace treering::sim
