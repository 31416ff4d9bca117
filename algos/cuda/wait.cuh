// The one way in which a kernel waits: with a deadline, an abort flag, and the reason on record.
#pragma once

#include "algos/cuda/call.hpp"
#include "algos/cuda/fold.cuh"
#include "algos/cuda/ptx_memory.cuh"

namespace treering::cuda {

inline constexpr std::uint32_t kPollsPerLook = 1024;  // the abort flag lies in host memory

// Who waits: a thread by itself, or the lanes of a warp, which poll together and so must give up
// together.
struct OneThread {
  TR_DEVICE static bool any(bool mine) { return mine; }
};
struct WholeWarp {
  TR_DEVICE static bool any(bool mine) { return cuda::any(kFullWarp, mine); }
};

// Polls done(), which all who wait together answer alike, until it is true, the host aborts or the
// deadline passes; says which.
template <class Who = OneThread, class Done>
TR_DEVICE DeviceReport::State wait_until(const DeviceContext& context, Done&& done) {
  if (done()) return DeviceReport::kFine;
  const std::uint64_t start_ns = timer_ns();
  for (std::uint32_t polls = 1; !done(); ++polls) {
    spin_pause();
    if (polls % kPollsPerLook != 0) continue;
    if (Who::any(load_relaxed(context.abort) != 0)) return DeviceReport::kAborted;
    if (Who::any(timer_ns() - start_ns > context.timeout_ns)) return DeviceReport::kTimeout;
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

// Waiting in the middle of a fold, for the lines of an input: protocols without tails.
struct LineWait {
  const DeviceContext* context;
  const FoldArgs* args;
  std::int32_t* failed;  // fold_failure of any thread
  bool gave_up = false;  // this thread: it waits for one deadline, not for one a pack

  // How a wait for `input` has ended.
  TR_DEVICE void ended(DeviceReport::State state, const FoldArgs::Operand& input) {
    if (state == DeviceReport::kFine) return;
    gave_up = true;
    *failed = fold_failure(state, static_cast<int>(&input - args->inputs));
  }
};

}  // namespace treering::cuda
