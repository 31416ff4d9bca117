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
inline int num_micro_batches(std::int64_t rows, std::int64_t micro_batch, int dp) {
  const std::int64_t longest = share_of(rows, 0, dp).count;
  if (micro_batch == 0 || longest == 0) return 1;
  return static_cast<int>((longest + micro_batch - 1) / micro_batch);
}

inline std::vector<MicroBatch> cut_batch(std::int64_t rows, std::int64_t micro_batch, int replica,
                                         int dp, std::uint64_t step) {
  const Share mine = share_of(rows, replica, dp);
  const int m = num_micro_batches(rows, micro_batch, dp);
  std::vector<MicroBatch> batches;
  for (int i = 0; i < m; ++i) {
    const Share part = share_of(mine.count, i, m);
    batches.push_back({i, mine.first + part.first, part.count, step, true});
  }
  return batches;
}

}  // namespace tr::par
