// A kernel that calls f(row, col) for all of them: a thread takes every so-and-so-many-th. No two
// calls write the same number, so the order means nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx.cuh"
#include "parallel/cuda_status.hpp"
#include "parallel/number.hpp"

namespace tr::par {

inline constexpr int kLoopThreads = 256;
inline constexpr std::int64_t kMaxLoopBlocks = 1024;

template <class F>
TR_KERNEL(kLoopThreads)
for_all(const F f, const std::int64_t cols, const std::int64_t count) {
  namespace cuda = treering::cuda;
  const std::int64_t first =
      static_cast<std::int64_t>(cuda::block_id()) * kLoopThreads + cuda::thread_id();
  const std::int64_t threads = static_cast<std::int64_t>(cuda::grid_blocks()) * kLoopThreads;
  for (std::int64_t i = first; i < count; i += threads) f(i / cols, i % cols);
}

template <class F>
Status cuda_loop(cudaStream_t stream, std::int64_t rows, std::int64_t cols, const F& f) {
  const std::int64_t count = rows * cols;
  if (count == 0) return {};
  const std::int64_t blocks = std::min((count + kLoopThreads - 1) / kLoopThreads, kMaxLoopBlocks);
  return cuda_status(treering::cuda::launch(for_all<F>, static_cast<unsigned>(blocks), kLoopThreads,
                                            0, stream, f, cols, count),
                     "starting a kernel");
}

}  // namespace tr::par
