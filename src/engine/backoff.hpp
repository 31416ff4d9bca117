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

#include "transports/link_pump.hpp"

namespace treering {

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How many polls a wait makes before it yields its core, learnt from the waits before it. Where two
// ranks share a core (because others keep the rest busy), what ends a wait is the yield, and every
// poll before it is lost: so the number is halved, and doubled again when spinning pays.
class Spin {
 public:
  explicit Spin(int most) : most_(most), polls_(most) {}
  int most() const { return most_; }
  int polls() const { return polls_; }
  // Where spinning is right, most waits end before they cost a question.
  int polls_before_asking() const { return most_ / 100; }

  void ended_while_spinning() {
    if (polls_ < most_) polls_ = std::min(most_, polls_ * 2);
  }
  void ended_by_yield() { polls_ = std::max(std::min(most_, kLeast), polls_ / 2); }

 private:
  static constexpr int kLeast = 32;
  int most_;
  int polls_;
};

class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  // pump: naps end when it has something to do.
  explicit Backoff(Spin& spin, LinkPump* pump = nullptr) : spin_(spin), pump_(pump) {}

  // Something moved: start afresh.
  void reset() {
    if (polls_ == 0) return;
    if (yields_ == 0) {
      spin_.ended_while_spinning();
    } else if (yields_ <= kFewYields) {
      spin_.ended_by_yield();
    }
    polls_ = 0;
    yields_ = 0;
    slow_ = napping_ = false;
  }

  // One failed poll. Returns true when the wait is slow enough to look at deadlines and peers:
  // about every millisecond at most, never while spinning.
  bool pause() {
    return pause([] { return false; });
  }
  // in_vain(), asked once in a wait, says that no spinning will help: yield at once.
  template <class F>
  bool pause(F in_vain) {
    if (polls_ == spin_.polls_before_asking() && in_vain()) polls_ = spin_.most() + 1;
    if (polls_ < spin_.polls()) {
      ++polls_;
      cpu_relax();
      return false;
    }
    ++yields_;
    polls_ = std::max(polls_, 1);
    // The clock costs a good part of what a yield does: look at it every few yields only.
    if (slow_ && !napping_ && yields_ % kYieldsPerLook != 0) {
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
  static constexpr unsigned kFewYields = 4;  // more: the other one was busy, on whichever core
  static constexpr auto kCheckEvery = std::chrono::milliseconds(1);

  void nap(Clock::time_point now) {
    // An eighth of the time waited so far, so that a wait is never prolonged by much; at most 1 ms.
    const auto eighth = std::chrono::duration_cast<std::chrono::nanoseconds>(now - since_) / 8;
    const auto ns = std::clamp<std::int64_t>(eighth.count(), 50'000, 1'000'000);
    if (pump_ != nullptr) return pump_->wait(std::chrono::nanoseconds(ns));
    timespec t{0, static_cast<long>(ns)};
    nanosleep(&t, nullptr);
  }

  Spin& spin_;
  LinkPump* pump_;
  int polls_ = 0;
  bool slow_ = false;     // spinning has ended: since_ and last_check_ are set
  bool napping_ = false;  // yielding has ended too
  unsigned yields_ = 0;   // of this wait, naps too
  Clock::time_point since_;
  Clock::time_point last_check_;
};

}  // namespace treering
