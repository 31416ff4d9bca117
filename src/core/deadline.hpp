// Deadline: a point on the steady clock after which a wait gives up.
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>

namespace treering {

// A value type; cheap to copy. Reading it costs one clock read, so a spinning wait looks at it only
// once in a while.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  // ms >= 0; so far ahead that the clock cannot count it: never.
  static Deadline after_ms(std::int64_t ms) {
    constexpr std::int64_t kCenturyMs = 100LL * 366 * 24 * 3600 * 1000;
    if (ms >= kCenturyMs) return never();
    return Deadline(Clock::now() + std::chrono::milliseconds(ms));
  }
  static Deadline earlier(Deadline a, Deadline b) { return a.at_ < b.at_ ? a : b; }

  bool is_never() const { return at_ == Clock::time_point::max(); }
  bool expired() const { return !is_never() && Clock::now() >= at_; }
  // Never negative; nanoseconds::max() for never().
  std::chrono::nanoseconds remaining() const {
    if (is_never()) return std::chrono::nanoseconds::max();
    return std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(at_ - Clock::now()));
  }
  // For poll and epoll_wait: rounded up, so that a wait of that length does not end early and spin;
  // -1 for never().
  int poll_ms() const {
    if (is_never()) return -1;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
    return static_cast<int>(std::min<std::int64_t>(ms, INT_MAX));
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace treering
