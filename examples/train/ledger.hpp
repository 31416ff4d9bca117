// What training steps took on a rank, beside what formulas say: bytes, memory, the pipeline's
// bubble. Tests, checks of replicas and checkpoints are not part of it, and neither are steps
// whose gradients overflowed: their parameters did not go out.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "treering/parallel/trace.hpp"
#include "treering/parallel/trainer.hpp"

#include "train/options.hpp"
#include "train/report.hpp"

namespace train {

class Ledger {
 public:
  // All outlive it.
  Ledger(tr::par::Trainer& trainer, tr::par::Compute& compute, const tr::par::Trace& trace)
      : trainer_(trainer), compute_(compute), trace_(trace) {}

  void begin_step();
  void end_step(const tr::par::StepReport& step);
  void skip_peak() { compute_.memory().reset_peak(); }  // of what was no training
  std::int64_t peak_bytes() const { return peak_bytes_; }

  // Collective over the world; rank 0 prints.
  void report(const Options& options, Report& report);

 private:
  static constexpr int kGroups = 6;
  struct Pipelined {
    double begin_us, end_us, busy_us;  // of the computation, from the beginning of the step on
  };

  std::array<tr::par::Comm*, kGroups> groups() const;
  void report_bytes(Report& report) const;
  void report_memory(const Options& options, Report& report) const;
  void report_bubble(const std::vector<double>& of_all_ranks, Report& report) const;
  tr::par::Traffic formula(int micro_batches) const;
  double measured_bubble(const std::vector<double>& of_all_ranks) const;

  tr::par::Trainer& trainer_;
  tr::par::Compute& compute_;
  const tr::par::Trace& trace_;
  std::array<tr::par::Traffic, kGroups> sent_;
  std::map<int, std::int64_t> steps_with_;  // so many micro-batches
  std::int64_t steps_ = 0, skipped_ = 0, peak_bytes_ = 0;
  // Of steps with as many micro-batches as the first.
  std::vector<Pipelined> pipelined_;
  tr::par::Schedule schedule_;
  std::size_t first_interval_ = 0;
  double began_us_ = 0.0;
};

}  // namespace train
