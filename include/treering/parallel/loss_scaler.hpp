// Dynamic loss scaling for fp16 (Micikevicius et al., "Mixed Precision Training", ICLR 2018):
// losses are multiplied so that small gradients do not vanish; a step whose gradients overflowed is
// skipped, on all ranks together.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tr::par {

class LossScaler {
 public:
  static constexpr std::int64_t kGrowthInterval = 2000;  // clean steps until the scale doubles
  static constexpr double kLargest = 4294967296.0;       // 2^32

  static LossScaler none() { return LossScaler(1.0, false); }
  static LossScaler fixed(double scale) { return LossScaler(scale, false); }
  static LossScaler dynamic() { return LossScaler(65536.0, true); }

  double scale() const { return scale_; }
  bool is_on() const { return is_dynamic_ || scale_ != 1.0; }
  // What all ranks agreed on: did any gradient overflow?
  void update(bool overflowed) {
    if (!is_dynamic_) return;
    if (overflowed) {
      scale_ = std::max(scale_ / 2, 1.0);
      clean_steps_ = 0;
    } else if (++clean_steps_ == kGrowthInterval) {
      scale_ = std::min(scale_ * 2, kLargest);
      clean_steps_ = 0;
    }
  }
  std::int64_t clean_steps() const { return clean_steps_; }
  void restore(double scale, std::int64_t clean_steps) {
    if (is_dynamic_) scale_ = scale, clean_steps_ = clean_steps;
  }

 private:
  LossScaler(double scale, bool is_dynamic) : scale_(scale), is_dynamic_(is_dynamic) {}
  double scale_;
  bool is_dynamic_;
  std::int64_t clean_steps_ = 0;
};

}  // namespace tr::par
