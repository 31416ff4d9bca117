// LinkSet: what a step reads from or stores to, beside the caller's buffers: links of one class, or
// peers' memory.
#pragma once

#include <cstdint>

#include "algos/cuda/ptx.cuh"
#include "algos/prims.hpp"
#include "core/device_link.hpp"

namespace treering::cuda {

using algos::Peers;

// Of a few peers, or of the ranks [first, end) but the own one.
struct LinkSet {
  DeviceLinkClass cls = DeviceLinkClass::kPair0;
  std::int16_t count = 0;
  std::int16_t first = 0;
  std::int16_t skip = -1;
  bool listed = false;
  bool is_windows = false;  // the peers' buffers themselves
  Peers peers;

  // In the order of the ranks, as the recorder sorts them: it is the order of the fold.
  TR_DEVICE int peer(int i) const {
    if (listed) return peers.rank[i];
    return first + i + (skip >= first && first + i >= skip ? 1 : 0);
  }

  TR_DEVICE static LinkSet one(int q, int channel) {
    LinkSet set;
    set.cls = DeviceLinkClass(channel);
    set.listed = true;
    set.peers.add(q);
    set.count = 1;
    return set;
  }
  TR_DEVICE static LinkSet few(const Peers& peers, int channel) {
    LinkSet set;
    set.cls = DeviceLinkClass(channel);
    set.listed = true;
    set.peers = peers;
    set.count = static_cast<std::int16_t>(peers.count);
    for (int i = 1; i < set.count; ++i) {
      for (int j = i; j > 0 && set.peers.rank[j] < set.peers.rank[j - 1]; --j) {
        const int higher = set.peers.rank[j - 1];
        set.peers.rank[j - 1] = set.peers.rank[j];
        set.peers.rank[j] = higher;
      }
    }
    return set;
  }
  TR_DEVICE static LinkSet range(int first, int end, int own, DeviceLinkClass cls) {
    LinkSet set;
    set.cls = cls;
    set.first = static_cast<std::int16_t>(first);
    const bool has_own = first <= own && own < end;
    set.skip = static_cast<std::int16_t>(has_own ? own : -1);
    set.count = static_cast<std::int16_t>(end - first - (has_own ? 1 : 0));
    return set;
  }
  TR_DEVICE static LinkSet windows(int first, int end, int own) {
    LinkSet set = range(first, end, own, DeviceLinkClass::kPair1);
    set.is_windows = true;
    return set;
  }
};

}  // namespace treering::cuda
