// The device side of the CUDA emulator; every file that is compiled for it starts with this one:
//
//   g++ -std=c++20 -x c++ -include tests/cudasim/cudasim.h -isystem /usr/local/cuda/include x.cu
//
// NVIDIA's own headers give all types and prototypes; they read this way because __CUDACC__ is not
// defined. What nvcc builds into the language is here: the words, threadIdx and its like, barriers
// and warp functions. A CUDA thread is a fiber and a block is one OS thread, so that __shared__
// can be thread_local. README.md explains how.
#pragma once

#define TR_CUDASIM 1

#define __host__
#define __device__
#define __global__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ static thread_local
#define __launch_bounds__(...)

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>
#include <functional>

extern thread_local constinit uint3 threadIdx;
extern thread_local constinit uint3 blockIdx;
extern thread_local constinit dim3 blockDim;
extern thread_local constinit dim3 gridDim;
inline constexpr int warpSize = 32;

namespace cudasim {

// The place in the kernel that a thread waits at, for reports. As a default argument it is the
// caller's line.
struct Where {
  const char* file;
  int line;
  static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

enum class WarpOp : std::uint8_t { kSync, kShuffle, kBallot, kBallotSync };

// The functions below are called by a CUDA thread. From a host thread, pause and the hooks are
// harmless, barriers and warp functions a fault.

// Named barrier 0..15 of `threads` threads (0: all of the block). Returns how many of them came
// with `predicate`.
int barrier(unsigned id, unsigned threads, bool predicate, Where where);
// All lanes of `mask` meet. kShuffle: the value of lane `source`; kBallot: the lanes with value !=
// 0. As on a GPU, shuffles and votes order no memory; kSync and kBallotSync do.
std::uint64_t warp(WarpOp op, unsigned mask, std::uint64_t value, int source, Where where);
// In every loop that waits for memory: lets others run. The watchdog for hangs lives in it.
void pause(Where where);

// Hooks for ptx_memory.cuh, at each access to memory that others may share. They hand over to
// another thread now and then when CUDASIM_SEED is set.
void before_access();
void after_post();  // after a flag was written
bool coin();        // a random bit, for what the hardware leaves open

void* dynamic_shared();
std::size_t dynamic_shared_bytes();

// Says what the kernel did wrong, and where the thread is; ends the process.
[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));

// All device memory lies in one range of addresses, a window for each device.
inline constexpr int kMaxDevices = 16;
inline constexpr std::size_t kWindowBytes = std::size_t{1} << 34;
extern std::uintptr_t arena_base;
extern thread_local constinit std::uint32_t reachable_devices;  // by the block that runs here

// The access of a kernel must be aligned, and to a device that peer access was enabled for.
inline void check_access(const void* p, std::size_t align) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  if (address % align != 0) fault("misaligned address %p: not a multiple of %zu", p, align);
  const std::uintptr_t window = (address - arena_base) / kWindowBytes;
  if (window < kMaxDevices && !(reachable_devices >> window & 1)) {
    fault("address %p is memory of device %d: peer access is not enabled", p, int(window));
  }
}

// Accesses to flags, of the memory order __ATOMIC_...
template <int order, class T>
T load(const T* p) {
  check_access(p, sizeof(T));
  before_access();
  return __atomic_load_n(p, order);
}
template <int order, class T>
void store(T* p, T v) {
  check_access(p, sizeof(T));
  before_access();
  __atomic_store_n(p, v, order);
  after_post();
}
template <int order, class T>
T fetch_add(T* p, T v) {
  check_access(p, sizeof(T));
  before_access();
  const T old = __atomic_fetch_add(p, v, order);
  after_post();
  return old;
}

// One kernel launch: `body` is what each thread runs.
cudaError_t launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream, std::function<void()> body);

inline unsigned linear_thread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

template <class T>
T shuffle(unsigned mask, T value, int source, Where where) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp(WarpOp::kShuffle, mask, bits, source, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace cudasim

// What nvcc knows by itself.

inline void __syncthreads(cudasim::Where where = cudasim::Where::here()) {
  cudasim::barrier(0, 0, false, where);
}
inline int __syncthreads_count(int predicate, cudasim::Where where = cudasim::Where::here()) {
  return cudasim::barrier(0, 0, predicate != 0, where);
}
inline int __syncthreads_or(int predicate, cudasim::Where where = cudasim::Where::here()) {
  return cudasim::barrier(0, 0, predicate != 0, where) != 0;
}
inline int __syncthreads_and(int predicate, cudasim::Where where = cudasim::Where::here()) {
  return cudasim::barrier(0, 0, predicate == 0, where) == 0;
}
inline void __syncwarp(unsigned mask = ~0u, cudasim::Where where = cudasim::Where::here()) {
  cudasim::warp(cudasim::WarpOp::kSync, mask, 0, 0, where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              cudasim::Where where = cudasim::Where::here()) {
  return static_cast<unsigned>(
      cudasim::warp(cudasim::WarpOp::kBallot, mask, predicate != 0, 0, where));
}
inline int __any_sync(unsigned mask, int predicate, cudasim::Where where = cudasim::Where::here()) {
  return __ballot_sync(mask, predicate, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, cudasim::Where where = cudasim::Where::here()) {
  return __ballot_sync(mask, predicate == 0, where) == 0;
}

// A lane outside its segment of `width` lanes keeps its own value.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              cudasim::Where where = cudasim::Where::here()) {
  const int lane = static_cast<int>(cudasim::linear_thread() % 32);
  return cudasim::shuffle(mask, value, (lane & -width) | (source & (width - 1)), where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 cudasim::Where where = cudasim::Where::here()) {
  const int lane = static_cast<int>(cudasim::linear_thread() % 32);
  const int source = lane - static_cast<int>(delta);
  return cudasim::shuffle(mask, value, source < (lane & -width) ? lane : source, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   cudasim::Where where = cudasim::Where::here()) {
  const int lane = static_cast<int>(cudasim::linear_thread() % 32);
  const int source = lane + static_cast<int>(delta);
  return cudasim::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  cudasim::Where where = cudasim::Where::here()) {
  const int lane = static_cast<int>(cudasim::linear_thread() % 32);
  const int source = lane ^ lane_mask;
  return cudasim::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, where);
}
