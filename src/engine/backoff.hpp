// Backoff: how a wait spends its time. Short spin, then yield on every failed poll, then sleep in
// growing naps: a wait that goes on for long burns no core, and one that ends soon costs no system
// call.
//
// The caller polls; between polls it calls pause(). The clock is first read when spinning has
// ended, so a quick wait never pays for it. Threads: one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <sched.h>
#include <time.h>

namespace treering {

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Backoff(int spin) : spin_(spin) {}

  // Something moved: start afresh.
  void reset() {
    polls_ = 0;
    slow_ = napping_ = false;
  }

  // One failed poll. Returns true when the wait is slow enough to look at deadlines and peers:
  // about every 2 ms at most, never while spinning.
  bool pause() {
    if (polls_ < spin_) {
      ++polls_;
      cpu_relax();
      return false;
    }
    // The clock costs a good part of what a yield does: look at it every few yields only.
    if (slow_ && !napping_ && ++yields_ % kYieldsPerLook != 0) {
      sched_yield();
      return false;
    }
    const Clock::time_point now = Clock::now();
    if (!slow_) {
      slow_ = true;
      since_ = last_check_ = now;
    }
    napping_ = now - since_ >= kYieldFor;
    if (napping_) {
      nap(now);
    } else {
      sched_yield();
    }
    if (now - last_check_ < kCheckEvery) return false;
    last_check_ = now;
    return true;
  }

  // How long nothing has moved.
  Clock::duration waited() const { return slow_ ? Clock::now() - since_ : Clock::duration::zero(); }

 private:
  static constexpr auto kYieldFor = std::chrono::milliseconds(4);
  static constexpr unsigned kYieldsPerLook = 8;
  static constexpr auto kCheckEvery = std::chrono::milliseconds(2);

  void nap(Clock::time_point now) {
    // An eighth of the time waited so far, so that a wait is never prolonged by much; at most 1 ms.
    const auto eighth = std::chrono::duration_cast<std::chrono::nanoseconds>(now - since_) / 8;
    timespec t{0, static_cast<long>(std::clamp<std::int64_t>(eighth.count(), 50'000, 1'000'000))};
    nanosleep(&t, nullptr);
  }

  int spin_;
  int polls_ = 0;
  bool slow_ = false;     // spinning has ended: since_ and last_check_ are set
  bool napping_ = false;  // yielding has ended too
  unsigned yields_ = 0;
  Clock::time_point since_;
  Clock::time_point last_check_;
};

}  // namespace treering
