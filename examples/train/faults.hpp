// Faults on purpose: --inject nan:RANK:STEP, slow:RANK:MS, kill:RANK:STEP, skip:RANK:STEP.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdio>
#include <limits>
#include <string>
#include <thread>

#include "treering/parallel/trainer.hpp"

namespace train {

struct Fault {
  enum class Kind { kNone, kNan, kSlow, kKill, kSkip } kind = Kind::kNone;
  int rank = 0, number = 0;
};
inline tr::Result<Fault> parse_fault(const std::string& text) {
  if (text.empty()) return Fault{};
  char kind[8] = {};
  Fault fault;
  char more = 0;
  const int read =
      std::sscanf(text.c_str(), "%7[a-z]:%d:%d%c", kind, &fault.rank, &fault.number, &more);
  const std::string name = kind;
  fault.kind = name == "nan"    ? Fault::Kind::kNan
               : name == "slow" ? Fault::Kind::kSlow
               : name == "kill" ? Fault::Kind::kKill
               : name == "skip" ? Fault::Kind::kSkip
                                : Fault::Kind::kNone;
  const bool is_number = fault.rank >= 0 && fault.number >= 0;
  if (read == 3 && is_number && fault.kind != Fault::Kind::kNone) return fault;
  return tr::Error{TR_INVALID_ARGUMENT, "--inject " + text +
                                            ": nan:RANK:STEP, slow:RANK:MS, kill:RANK:STEP or "
                                            "skip:RANK:STEP, with numbers from 0 on"};
}
// A fault that would never happen is a mistake, too.
inline tr::Status check_fault(const Fault& fault, const std::string& text, int ranks,
                              std::int64_t last_step) {
  const auto never = [&](const std::string& why) {
    return tr::Error{TR_INVALID_ARGUMENT, "--inject " + text + ": " + why};
  };
  if (fault.kind == Fault::Kind::kNone) return {};
  if (fault.rank >= ranks) {
    return never("there is no rank " + std::to_string(fault.rank) + " among " +
                 std::to_string(ranks) + " (they count from 0)");
  }
  if (fault.kind == Fault::Kind::kSlow || fault.number <= last_step) return {};
  return never("there is no step " + std::to_string(fault.number) + "; the last one is step " +
               std::to_string(last_step) + " (they count from 0)");
}

// Another's data, but on one rank something goes wrong.
class FaultyData final : public tr::par::Data {
 public:
  FaultyData(const tr::par::Data& data, const Fault& fault, int rank)
      : data_(data), fault_(fault), is_here_(fault.rank == rank) {}
  void begin_step(int step) {
    step_ = step;
    if (!is_here_) return;
    if (fault_.kind == Fault::Kind::kKill && step == fault_.number) (void)std::raise(SIGKILL);
    if (fault_.kind == Fault::Kind::kSlow) {
      std::this_thread::sleep_for(std::chrono::milliseconds(fault_.number));
    }
  }
  // Does this rank leave the step out?
  bool skips(int step) const {
    return is_here_ && fault_.kind == Fault::Kind::kSkip && step == fault_.number;
  }
  std::int64_t rows() const override { return data_.rows(); }
  std::int64_t features() const override { return data_.features(); }
  void read(std::span<const std::int64_t> rows, std::span<float> features,
            std::span<std::int32_t> labels) const override {
    data_.read(rows, features, labels);
    const bool breaks = is_here_ && fault_.kind == Fault::Kind::kNan && step_ == fault_.number;
    if (breaks && !features.empty()) features[0] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  const tr::par::Data& data_;
  Fault fault_;
  bool is_here_;
  int step_ = 0;
};

}  // namespace train
