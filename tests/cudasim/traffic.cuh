// One block sends numbers to another through a few slots, in each of the three protocols. BUG
// breaks one rule, for the tests that want to see it found.
#pragma once

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx_memory.cuh"

namespace traffic {

using namespace treering::cuda;

enum class Bug {
  kNone,
  kNoBarrierBeforePost,
  kRelaxedPost,
  kNoBarrierBeforeRelease,
  kOneFlagOfTwo
};
enum class Protocol { kSimple, kLl, kLl128 };

#ifndef TRAFFIC_BUG
#define TRAFFIC_BUG kNone
#endif

inline constexpr int kThreads = 64;
inline constexpr int kSlots = 2;
inline constexpr int kVecsPerSlot = 2 * kThreads;

// All memory of a one-direction link between two blocks.
struct Link {
  alignas(128) std::uint64_t tail;  // slots that were filled
  alignas(128) std::uint64_t head;  // slots that may be filled again
  alignas(128) Vec16 data[kSlots][kVecsPerSlot];
  alignas(128) LlLine lines[kSlots][kThreads];
  alignas(128) Vec16 wide[kSlots][kThreads];
};

// Element i of message m.
TR_DEVICE std::uint64_t value_of(int m, int i) {
  return static_cast<std::uint64_t>(m) * 1000003u + static_cast<std::uint64_t>(i);
}

TR_DEVICE void wait_at_least(const std::uint64_t* p, std::uint64_t value,
                             Where where = Where::here()) {
  while (load_acquire(p) < value) spin_pause(where);
}

// Simple: thread 0 waits and posts, barriers around the copy.
template <Bug bug>
TR_DEVICE void send_simple(Link* link, int m) {
  if (thread_id() == 0 && m >= kSlots)
    wait_at_least(&link->head, static_cast<std::uint64_t>(m - kSlots + 1));
  __syncthreads();
  for (int i = thread_id(); i < kVecsPerSlot; i += kThreads) {
    store_vec(&link->data[m % kSlots][i], {value_of(m, i), 0});
  }
  if (bug != Bug::kNoBarrierBeforePost) __syncthreads();
  if (thread_id() == 0) {
    if (bug == Bug::kRelaxedPost) {
      store_relaxed(&link->tail, static_cast<std::uint64_t>(m + 1));
    } else {
      store_release(&link->tail, static_cast<std::uint64_t>(m + 1));
    }
  }
}
template <Bug bug>
TR_DEVICE bool receive_simple(Link* link, int m) {
  if (thread_id() == 0) wait_at_least(&link->tail, static_cast<std::uint64_t>(m + 1));
  __syncthreads();
  bool ok = true;
  for (int i = thread_id(); i < kVecsPerSlot; i += kThreads) {
    ok = ok && load_vec(&link->data[m % kSlots][i]).lo == value_of(m, i);
  }
  if (bug != Bug::kNoBarrierBeforeRelease) __syncthreads();
  if (thread_id() == 0) store_release(&link->head, static_cast<std::uint64_t>(m + 1));
  return ok;
}

// LL: each thread waits for its own line. Flags are message numbers; the head gives the lines back.
TR_DEVICE void send_ll(Link* link, int m) {
  if (thread_id() == 0 && m >= kSlots)
    wait_at_least(&link->head, static_cast<std::uint64_t>(m - kSlots + 1));
  __syncthreads();
  ll_store(&link->lines[m % kSlots][thread_id()], value_of(m, thread_id()) << 20,
           static_cast<std::uint32_t>(m + 1));
}
template <Bug bug>
TR_DEVICE bool receive_ll(Link* link, int m) {
  std::uint64_t data = 0;
  LlLine* line = &link->lines[m % kSlots][thread_id()];
  if (bug == Bug::kOneFlagOfTwo) {
    while (load_acquire(&line->flag0) != static_cast<std::uint32_t>(m + 1)) spin_pause();
    data = std::uint64_t{load_relaxed(&line->data1)} << 32 | load_relaxed(&line->data0);
  } else {
    while (!ll_load(line, static_cast<std::uint32_t>(m + 1), &data)) spin_pause();
  }
  __syncthreads();
  if (thread_id() == 0) store_release(&link->head, static_cast<std::uint64_t>(m + 1));
  return data == value_of(m, thread_id()) << 20;
}

TR_DEVICE void send_ll128(Link* link, int m) {
  if (thread_id() == 0 && m >= kSlots)
    wait_at_least(&link->head, static_cast<std::uint64_t>(m - kSlots + 1));
  __syncthreads();
  ll128_store(&link->wide[m % kSlots][warp_id() * 32],
              {value_of(m, thread_id()), ~value_of(m, thread_id())},
              static_cast<std::uint64_t>(m + 1));
}
TR_DEVICE bool receive_ll128(Link* link, int m) {
  const Vec16* const lines = &link->wide[m % kSlots][warp_id() * 32];
  while (!ll128_arrived(lines, static_cast<std::uint64_t>(m + 1))) spin_pause();
  const Vec16 v = ll128_load(lines);
  __syncthreads();
  if (thread_id() == 0) store_release(&link->head, static_cast<std::uint64_t>(m + 1));
  const std::uint64_t value = value_of(m, thread_id());
  return v.lo == value && (ll128_has_flag() || v.hi == ~value);
}

// Block 0 sends `messages` messages, block 1 counts the wrong ones.
template <Protocol protocol, Bug bug>
__global__ void traffic(Link* link, int messages, std::uint64_t* wrong) {
  bool ok = true;
  for (int m = 0; m < messages; ++m) {
    if (block_id() == 0) {
      if constexpr (protocol == Protocol::kSimple) send_simple<bug>(link, m);
      if constexpr (protocol == Protocol::kLl) send_ll(link, m);
      if constexpr (protocol == Protocol::kLl128) send_ll128(link, m);
    } else {
      if constexpr (protocol == Protocol::kSimple) ok = receive_simple<bug>(link, m) && ok;
      if constexpr (protocol == Protocol::kLl) ok = receive_ll<bug>(link, m) && ok;
      if constexpr (protocol == Protocol::kLl128) ok = receive_ll128(link, m) && ok;
    }
  }
  if (!ok) fetch_add(wrong, 1);
}

// How many threads saw a wrong number; -1: CUDA failed.
template <Protocol protocol, Bug bug>
int run(int messages) {
  Link* link = nullptr;
  std::uint64_t* wrong = nullptr;
  std::uint64_t result = 0;
  if (cudaMalloc(reinterpret_cast<void**>(&link), sizeof *link) != cudaSuccess ||
      cudaMalloc(reinterpret_cast<void**>(&wrong), 8) != cudaSuccess ||
      cudaMemset(link, 0, sizeof *link) != cudaSuccess || cudaMemset(wrong, 0, 8) != cudaSuccess ||
      launch(traffic<protocol, bug>, 2, kThreads, 0, nullptr, link, messages, wrong) !=
          cudaSuccess ||
      cudaMemcpy(&result, wrong, 8, cudaMemcpyDeviceToHost) != cudaSuccess ||
      cudaFree(link) != cudaSuccess || cudaFree(wrong) != cudaSuccess) {
    return -1;
  }
  return static_cast<int>(result);
}

}  // namespace traffic
