// Two-level algorithms: rings of hosts, with shared memory inside each host.
//
// Source: the hierarchical ring of Jia et al., "Highly scalable deep learning training system with
// mixed-precision", 2018, with one ring per local rank ("rails") as in the two-dimensional ring of
// Ying et al., "Image classification at supercomputer scale", 2018.
//
// H hosts; the largest has C ranks, and so there are C rings. Ring c goes through one rank of every
// host, its owner there: member c mod (members of that host). So hosts may differ in size: the
// members of a smaller one own several rings. To the ring an owner stands for its whole host: what
// it adds is the fold of all the host's inputs, made in the very step that needs it, and what
// arrives complete it shows to all its host in the step that passes it on. The levels are one
// program; neither waits for the other to finish.
//
// With one rank a host this is algos/ring.hpp, step for step. Bytes that a host sends to the next
// one for a vector of S bytes: reduce-scatter and all-gather (H-1)/H S, all-reduce 2(H-1)/H S (of
// the parts of a reduce-scatter all but its successor's, of an all-gather likewise).
//
// Where a smaller host makes links between hosts carry several rings, r at most, k slices a chunk
// need up to r k + 1 slots a link, as r rings of their own would, together: the smallest host
// decides, r = C / (its members), rounded up.
//
// Inside a host, inputs go over channel 0 and results over channel 1, so that a later round's
// inputs need not wait for an earlier round's results.
#pragma once

#include "algos/prims.hpp"

namespace treering::algos::two_level {

// Chunk `k` of ring `ring`, where a vector is cut for all: 0 <= k < H.
struct EqualChunks {
  Hosts at;
  TR_HD constexpr int operator()(int ring, int k) const {
    return ring < at.most ? ring * at.count + k : -1;
  }
};
// Where every rank has a chunk: ring c takes that of each host's member c, if it has one.
struct RankChunks {
  Hosts at;
  TR_HD constexpr int operator()(int ring, int k) const {
    return ring < at.members_of(k) ? at.rank_of(k, ring) : -1;
  }
};

// What the owner of `ring` does with chunk c in step i of the ring: steps 1..H fold (the first has
// no left neighbour's message yet), H completes, H..2H-1 gather.
template <bool kFolds, bool kGathers, class P>
TR_HD void ring_step(P& p, int ring, int c, int i) {
  const Hosts& at = p.hosts();
  const int hosts = at.count, h = at.host_of(p.rank());
  const auto owner = [&](int host) { return at.rank_of(host, ring % at.members_of(host)); };
  const auto left = p.from(owner(mod(h - 1, hosts)));
  const auto right = p.to(owner(mod(h + 1, hosts)));
  const bool alone = at.members_of(h) == 1;
  if (i < hosts) {
    if (i > 1) {
      p.recv_reduce_send(left | p.from_host(0), c, right);
    } else if (alone) {
      p.send(c, right);
    } else {
      p.recv_reduce_send(p.from_host(0), c, right);
    }
  } else if (i == hosts && !kFolds) {
    p.send(c, right | p.to_host(1));
    p.copy(c);
  } else if (i == hosts && !kGathers) {
    p.recv_reduce_copy(left | p.from_host(0), c, Last::kYes);
  } else if (i == hosts) {
    p.recv_reduce_copy_send(left | p.from_host(0), c, right | p.to_host(1), Last::kYes);
  } else if (i < 2 * hosts - 1) {
    p.recv_copy_send(left, c, right | p.to_host(1));
  } else if (alone) {
    p.recv(left, c);
  } else {
    p.recv_copy_send(left, c, p.to_host(1));
  }
}

// All rings of this host, step by step, so that they advance side by side. Owners take their rings
// in turns, one each; the host's ranks give their inputs to the owners before each turn's step and
// take the results after it. Hence no link inside a host has more than one chunk to hold.
template <bool kFolds, bool kGathers, class P, class ChunkOf>
TR_HD void rings(P& p, const ChunkOf& chunk_of) {
  const Hosts& at = p.hosts();
  const int hosts = at.count, h = at.host_of(p.rank());
  const int members = at.members_of(h), me = at.member_of(p.rank());
  for (int i = kFolds ? 1 : hosts; i < (kGathers ? 2 * hosts : hosts + 1); ++i) {
    const int k = mod(h - i, hosts);
    for (int first = 0; first < at.most; first += members) {
      for (int d = 1; kFolds && i <= hosts && d < members; ++d) {
        const int owner = mod(me + d, members), c = chunk_of(first + owner, k);
        if (c >= 0) p.send(c, p.to(at.rank_of(h, owner), 0));
      }
      const int mine = chunk_of(first + me, k);
      if (mine >= 0) ring_step<kFolds, kGathers>(p, first + me, mine, i);
      for (int d = 1; kGathers && i >= hosts && d < members; ++d) {
        const int owner = mod(me + d, members), c = chunk_of(first + owner, k);
        if (c >= 0) p.recv(p.from(at.rank_of(h, owner), 1), c);
      }
    }
  }
}

template <class P>
TR_HD void all_reduce(P& p) {
  rings<true, true>(p, EqualChunks{p.hosts()});
}

template <class P>
TR_HD void reduce_scatter(P& p) {
  rings<true, false>(p, RankChunks{p.hosts()});
}

template <class P>
TR_HD void all_gather(P& p) {
  rings<false, true>(p, RankChunks{p.hosts()});
}

}  // namespace treering::algos::two_level
