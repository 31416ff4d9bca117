// StreamTrial: streaming stores into slots, or ordinary ones? Decided by trying both, now and then.
//
// Which is faster depends on how far apart the ranks' cores are at this moment. Measured on a
// virtual Zen 3 machine whose cores the host moves about: within one L3 ordinary stores take half
// the time of streaming ones, across L3s twice (256 KiB: 24 against 50 us, then 108 against 50). A
// machine that keeps its cores in place gets the same answer at every trial.
//
// It is each writer's own business and changes no bits. All ranks count the same calls, so they try
// the same way at the same time. Of each way the best of a few calls counts: late ranks only ever
// make a call slower.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>

#include "core/types.hpp"

namespace treering {

class StreamTrial {
 public:
  // The way for the next call; then report() how long it took. bytes: of the call, the same on all
  // ranks.
  bool begin(Collective collective, std::uint64_t bytes) {
    State& s = state(collective, bytes);
    const std::uint32_t phase = s.calls % kPeriod;
    if (phase == 0) s.best_ns = {kNever, kNever};
    if (phase == kTrials) s.streaming = s.best_ns[1] <= s.best_ns[0];
    return phase < kTrials ? phase % 2 == 1 : s.streaming;
  }
  void report(Collective collective, std::uint64_t bytes, std::chrono::nanoseconds took) {
    State& s = state(collective, bytes);
    const std::uint32_t phase = s.calls++ % kPeriod;
    if (phase >= kTrials) return;
    std::uint64_t& best = s.best_ns[phase % 2];
    best = std::min<std::uint64_t>(best, static_cast<std::uint64_t>(took.count()));
  }
  // The present answer, for calls that nobody times.
  bool current(Collective collective, std::uint64_t bytes) {
    return state(collective, bytes).streaming;
  }

 private:
  static constexpr std::uint32_t kTrials = 8;    // calls that try, both ways in turn
  static constexpr std::uint32_t kPeriod = 128;  // of so many
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  static constexpr int kSizes = 32;  // by power of two

  struct State {
    std::uint32_t calls = 0;
    bool streaming = true;
    std::array<std::uint64_t, 2> best_ns{kNever, kNever};
  };
  State& state(Collective collective, std::uint64_t bytes) {
    const int size = std::min<int>(kSizes - 1, std::bit_width(bytes));
    return states_[static_cast<std::size_t>(collective)][static_cast<std::size_t>(size)];
  }

  std::array<std::array<State, kSizes>, kNumCollectives> states_{};
};

}  // namespace treering
