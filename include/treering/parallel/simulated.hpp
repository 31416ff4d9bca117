// Time that is computed instead of measured: real messages and real numbers, but an operation takes
// as long as links of a declared bandwidth would take, and a matrix product as long as a device of
// declared speed. Traces, overlap and bubbles then do not depend on the machine: eight ranks on two
// cores behave like eight ranks on two nodes, and the same run gives the same times.
//
// Each rank has a clock of its own; a message carries the time at which it arrives, a collective
// begins when the last rank has come. Each group is taken to have links of its own. Host backends
// only.
#pragma once

#include <memory>

#include "treering/parallel/comm.hpp"
#include "treering/parallel/compute.hpp"
#include "treering/parallel/trace.hpp"

namespace tr::par {

class SimulatedClock final : public Clock {
 public:
  double now_us() const override { return now_us_; }
  void advance(double us) { now_us_ += us; }
  // Never back. How long the rank stood still.
  double advance_to(double us) {
    const double waited = us > now_us_ ? us - now_us_ : 0.0;
    now_us_ += waited;
    return waited;
  }

 private:
  double now_us_ = 0.0;
};

struct SimulatedLinks {
  double intra_bytes_per_us = 450e3, inter_bytes_per_us = 50e3;  // 1e3: one GB/s
  int ranks_per_node = 8;
  double latency_us = 0.0;  // of each operation
};

// The same group, and those split from it; messages take time on `clock`, which outlives them, as
// does `trace`, if there is one.
std::unique_ptr<Comm> simulate_links(std::unique_ptr<Comm> world, SimulatedClock& clock,
                                     const SimulatedLinks& links, Trace* trace = nullptr);

// Computes with `inner`, which outlives it. Matrix products take 2 m n k / flops_per_us and are in
// the trace's compute row ("multiply"); all else takes no time.
std::unique_ptr<Compute> simulate_compute(Compute& inner, SimulatedClock& clock,
                                          double flops_per_us, Trace* trace = nullptr);

}  // namespace tr::par
