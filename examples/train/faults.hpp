// Faults on purpose: --inject nan:RANK:STEP, slow:RANK:MS, kill:RANK:STEP.
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
  enum class Kind { kNone, kNan, kSlow, kKill } kind = Kind::kNone;
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
                                : Fault::Kind::kNone;
  if (read == 3 && fault.kind != Fault::Kind::kNone) return fault;
  return tr::Error{TR_INVALID_ARGUMENT,
                   "--inject " + text + ": nan:RANK:STEP, slow:RANK:MS or kill:RANK:STEP"};
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
