// A junction: blocks of a kernel meet there, between the calls of a launch.
#pragma once

#include "algos/cuda/ptx_memory.cuh"
#include "core/device_link.hpp"

namespace treering::cuda {

// By one thread of each of `blocks` blocks, the same ones whenever the junction is used in a
// kernel. What they all have stored and seen before, they all see afterwards. Says whether any of
// them had `failed`.
//
// It looks neither at a deadline nor at the abort flag, and ends all the same: who has not come yet
// is in a call, whose waits do, and then comes whether or not it has failed.
//
// A junction is as it was when all have left, but for `turn`; so the next kernel may use it with
// another number of blocks.
TR_DEVICE bool pass(DeviceJunction& junction, int blocks, bool failed) {
  if (blocks == 1) return failed;
  constexpr std::uint32_t kFailed = 1u << 16;               // in `arrived`: a count of its own
  const std::uint32_t turn = load_relaxed(&junction.turn);  // stays until this block arrives
  const std::uint32_t mine = 1 + (failed ? kFailed : 0);
  const std::uint32_t all = fetch_add(&junction.arrived, mine) + mine;
  if (all % kFailed != static_cast<std::uint32_t>(blocks)) {
    std::uint32_t next;
    while ((next = load_acquire(&junction.turn)) == turn) spin_pause();
    return next % 2 != 0;
  }
  store_relaxed(&junction.arrived, 0);
  const bool any_failed = all >= kFailed;
  // The next even number, or that and one: whoever waits for it reads it before the junction's next
  // use.
  store_release(&junction.turn, (turn | 1) + 1 + (any_failed ? 1 : 0));
  return any_failed;
}

}  // namespace treering::cuda
