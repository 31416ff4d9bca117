// Work and time: operations of a step, what a device reaches, clocks that are real or simulated.
#pragma once

#include <memory>
#include <optional>

#include "treering/parallel/simulated.hpp"
#include "treering/parallel/trace.hpp"

#include "train/options.hpp"

namespace train {

// Multiplications and additions of a step: 2 forward, 4 backward for each parameter and row, but
// for the gradient of the data, which nobody needs.
double step_flops(const tr::par::Model& model, double rows);

// What matrix products of this Compute reach here.
double measured_gflops(tr::par::Compute& compute);

inline constexpr double kSimulatedGflops = 100.0;  // of a rank, unless --peak-gflops says otherwise

// Time as it passes, or as declared links and devices would take it (--sim-bw).
class Time {
 public:
  explicit Time(int rank) : trace(rank, tr::par::wall_clock()), rank_(rank) {}
  std::unique_ptr<tr::par::Comm> wrap(std::unique_ptr<tr::par::Comm> world, const Options& options);
  // After the world.
  tr::par::Compute& wrap(tr::par::Compute& compute, const Options& options);
  bool is_simulated() const { return clock_.has_value(); }

 private:
  std::optional<tr::par::SimulatedClock> clock_;

 public:
  tr::par::Trace trace;

 private:
  std::unique_ptr<tr::par::Compute> simulated_;
  int rank_;
};

}  // namespace train
