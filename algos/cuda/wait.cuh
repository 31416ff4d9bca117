// The one way in which a kernel waits: with a deadline, an abort flag, and the reason on record.
#pragma once

#include "algos/cuda/call.hpp"
#include "algos/cuda/ptx.cuh"

namespace treering::cuda {

inline constexpr std::uint32_t kPollsPerLook = 1024;  // the abort flag lies in host memory

// Polls done() until it is true, the host aborts or the deadline passes; says which.
template <class Done>
TR_DEVICE DeviceReport::State wait_until(const DeviceCall& call, Done&& done) {
  if (done()) return DeviceReport::kFine;
  const std::uint64_t start_ns = timer_ns();
  for (std::uint32_t polls = 1; !done(); ++polls) {
    spin_pause();
    if (polls % kPollsPerLook != 0) continue;
    if (load_relaxed(call.abort) != 0) return DeviceReport::kAborted;
    if (timer_ns() - start_ns > call.timeout_ns) return DeviceReport::kTimeout;
  }
  return DeviceReport::kFine;
}

// Why a fold gave up, and on which of its inputs, in one word of shared memory.
TR_DEVICE std::int32_t fold_failure(DeviceReport::State why, int input) {
  return static_cast<std::int32_t>(why) | input << 8;
}
TR_DEVICE DeviceReport::State failure_state(std::int32_t failure) {
  return DeviceReport::State(failure & 0xFF);
}
TR_DEVICE int failure_input(std::int32_t failure) { return failure >> 8; }

}  // namespace treering::cuda
