// The machine under the kernels: threads, warps, blocks, time. All that differs between a GPU and
// the emulator of tests/cudasim is here, in ptx_memory.cuh (flags, data, lines) and in launch.cuh,
// the two bodies side by side; kernels themselves are plain C++ (tests/cudasim/test_kernel_rules.py
// checks that).
//
// A function is called by one thread unless it says that a warp or a block calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

#ifdef __CUDACC__
#define TR_DEVICE __device__ __forceinline__
// Compiled once and called: for what all kernels share and is large. (Once, because kernels are
// compiled as relocatable code and linked by nvcc; whole programs get a copy for every kernel.)
#define TR_DEVICE_SHARED __device__ __noinline__
// A kernel's large parameter: read where it lies, not copied to every thread's stack.
#define TR_PARAMETER const __grid_constant__
#define TR_KERNEL(max_threads) __global__ void __launch_bounds__(max_threads)
#else
#include <chrono>
#define TR_DEVICE inline
#define TR_DEVICE_SHARED inline
#define TR_PARAMETER const
#define TR_KERNEL(max_threads) __global__ void
#endif

namespace treering::cuda {

// The caller's line, for the emulator's reports; nothing on a GPU. A function that waits takes one
// as its last argument and hands it on.
#ifdef __CUDACC__
struct Where {
  TR_DEVICE static constexpr Where here() { return {}; }
};
#else
using cudasim::Where;
#endif

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullWarp = 0xffffffffu;

// The number of the thread in its block and of the lane in its warp; blocks are one-dimensional.
TR_DEVICE int thread_id() { return static_cast<int>(threadIdx.x); }
TR_DEVICE int block_threads() { return static_cast<int>(blockDim.x); }
TR_DEVICE int block_id() { return static_cast<int>(blockIdx.x); }
TR_DEVICE int grid_blocks() { return static_cast<int>(gridDim.x); }
TR_DEVICE int lane_id() { return thread_id() % kWarpSize; }
TR_DEVICE int warp_id() { return thread_id() / kWarpSize; }

// --- Warps ---------------------------------------------------------------------------------------

// The lanes of the mask meet; what each wrote before, all see afterwards.
TR_DEVICE void sync_warp(unsigned mask = kFullWarp, [[maybe_unused]] Where where = Where::here()) {
#ifdef __CUDACC__
  __syncwarp(mask);
#else
  __syncwarp(mask, where);
#endif
}

// Votes and shuffles (4 or 8 bytes), by all lanes of the mask. They order no memory.
TR_DEVICE unsigned ballot(unsigned mask, bool predicate,
                          [[maybe_unused]] Where where = Where::here()) {
#ifdef __CUDACC__
  return __ballot_sync(mask, predicate);
#else
  return __ballot_sync(mask, predicate, where);
#endif
}
TR_DEVICE bool any(unsigned mask, bool predicate, Where where = Where::here()) {
  return ballot(mask, predicate, where) != 0;
}
TR_DEVICE bool all(unsigned mask, bool predicate, Where where = Where::here()) {
  return ballot(mask, !predicate, where) == 0;
}
template <class T>
TR_DEVICE T shuffle(unsigned mask, T value, int source,
                    [[maybe_unused]] Where where = Where::here()) {
#ifdef __CUDACC__
  return __shfl_sync(mask, value, source);
#else
  return __shfl_sync(mask, value, source, kWarpSize, where);
#endif
}
template <class T>
TR_DEVICE T shuffle_xor(unsigned mask, T value, int lanes,
                        [[maybe_unused]] Where where = Where::here()) {
#ifdef __CUDACC__
  return __shfl_xor_sync(mask, value, lanes);
#else
  return __shfl_xor_sync(mask, value, lanes, kWarpSize, where);
#endif
}

// --- Blocks --------------------------------------------------------------------------------------

// Named barrier 0..15: `threads` threads, whole warps, meet; what each wrote before, all see
// afterwards. __syncthreads is barrier 0 of the whole block.
TR_DEVICE void barrier_sync(int id, int threads, [[maybe_unused]] Where where = Where::here()) {
#ifdef __CUDACC__
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  cudasim::barrier(static_cast<unsigned>(id), static_cast<unsigned>(threads), false, where);
#endif
}

// The same, and all learn whether any of them came with true.
TR_DEVICE bool barrier_or(int id, int threads, bool predicate,
                          [[maybe_unused]] Where where = Where::here()) {
#ifdef __CUDACC__
  int result;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.s32 p, %3, 0; bar.red.or.pred q, %1, %2, p; selp.s32 %0, 1, 0, "
      "q; }"
      : "=r"(result)
      : "r"(id), "r"(threads), "r"(static_cast<int>(predicate))
      : "memory");
  return result != 0;
#else
  return cudasim::barrier(static_cast<unsigned>(id), static_cast<unsigned>(threads), predicate,
                          where) != 0;
#endif
}

// In the body of every loop that waits for memory. On a GPU all threads run anyway.
TR_DEVICE void spin_pause([[maybe_unused]] Where where = Where::here()) {
#ifndef __CUDACC__
  cudasim::pause(where);
#endif
}

// Nanoseconds, for deadlines; on a GPU in steps of up to a microsecond.
TR_DEVICE std::uint64_t timer_ns() {
#ifdef __CUDACC__
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
#endif
}

// The block's dynamic shared memory, aligned to 128 bytes; garbage at the start of a kernel.
TR_DEVICE std::byte* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(128) std::byte treering_dynamic_shared[];
  return treering_dynamic_shared;
#else
  return static_cast<std::byte*>(cudasim::dynamic_shared());
#endif
}

}  // namespace treering::cuda
