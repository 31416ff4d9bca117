// How a global batch becomes replicas' shares and micro-batches.
#pragma once

#include <algorithm>
#include <vector>

#include "treering/parallel/mesh.hpp"
#include "treering/parallel/stage.hpp"
#include "treering/parallel/trainer.hpp"

namespace tr::par {

// Rows lie one after another: share 0's micro-batches, share 1's, ... Every replica has the same
// number of micro-batches, because pipelines and gradient reductions keep step; some may be empty.
struct BatchCut {
  std::int64_t micro_batch = 0;  // rows at most; 0: any
  int micro_batches = 0;         // of a replica, exactly; 0: as micro_batch says
  int multiple_of = 1;           // micro-batches: what the schedule needs
  std::int64_t unit = 1;  // rows of a micro-batch are a multiple: what tensor parallelism needs

  int count(std::int64_t rows, int dp) const {
    if (micro_batches > 0) return micro_batches;
    const std::int64_t longest = share_of(rows / unit, 0, dp).count * unit;
    const std::int64_t m =
        micro_batch == 0 || longest == 0 ? 1 : (longest + micro_batch - 1) / micro_batch;
    return static_cast<int>((m + multiple_of - 1) / multiple_of * multiple_of);
  }

  // Rows of the longest micro-batch of all replicas.
  std::int64_t longest(std::int64_t rows, int dp) const {
    return share_of(share_of(rows / unit, 0, dp).count, 0, count(rows, dp)).count * unit;
  }

  // rows must be a multiple of unit.
  std::vector<MicroBatch> cut(std::int64_t rows, int replica, int dp, std::uint64_t step) const {
    const Share mine = share_of(rows / unit, replica, dp);
    const int m = count(rows, dp);
    std::vector<MicroBatch> batches;
    for (int i = 0; i < m; ++i) {
      const Share part = share_of(mine.count, i, m);
      batches.push_back({i, (mine.first + part.first) * unit, part.count * unit, step, true});
    }
    return batches;
  }
};

}  // namespace tr::par
