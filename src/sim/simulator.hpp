// Simulator: how long a collective takes on a described cluster. An event-level model.
//
// A lane runs its steps in order, a step its slices. A slice starts when its messages are there,
// its links have room and the core is free. The core then works: a fixed cost a step, an overhead
// a message, a cost a byte folded or copied. A message then crosses the resources of its route,
// each one as soon as the one before lets it begin and it is free itself (cut-through), and is
// there when the slowest has passed its last byte, and the latency after it. Who comes first is
// served first, so what shares a link gets its turn message by message: in sum the link's
// bandwidth, as with fair sharing, but not in its parts.
//
// Two rounds of a lane are open, as in the engine: while the older one waits, the younger goes on
// with steps whose links the older one no longer needs.
//
// Long vectors have many equal rounds. When their messages are more than the budget, the first
// rounds are simulated, once all and once half of them: the rest follows at the pace between.
//
// Deterministic: the same input gives the same times, bit by bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "sim/fabric.hpp"
#include "sim/program.hpp"

namespace treering::sim {

// What a rank did, for a timeline.
struct Span {
  double begin_us = 0, end_us = 0;
  std::int32_t rank = 0, lane = 0;
  algos::Verb verb = algos::Verb::kCopy;
  std::int32_t chunk = 0;
  std::uint32_t slice = 0;
  std::uint64_t bytes = 0;
};

struct SimOptions {
  std::uint64_t max_slices = 40'000'000;  // slices of steps that are simulated
  std::size_t max_spans = 0;              // of a timeline; the first ones
};

struct Load {
  double busy_us = 0;
  std::uint64_t messages = 0;
  double bytes = 0;
};

struct SimResult {
  double time_us = 0;           // until the last rank has ended
  std::vector<double> rank_us;  // when each rank ended
  std::vector<Load> loads;      // of the fabric's resources
  std::uint64_t messages = 0;
  std::uint64_t simulated_rounds = 0, rounds = 0;  // differ where the rest was extrapolated
  std::vector<Span> spans;
};

// An error where the schedules stand still: a step that waits for a message that nobody sends.
Result<SimResult> simulate(const Workload& workload, const Fabric& fabric,
                           const SimOptions& options = {});

// The same for programs that are compiled already: for many sizes of one algorithm.
Result<SimResult> simulate(const Workload& workload, const Programs& programs, const Fabric& fabric,
                           const SimOptions& options = {});

// Chrome's trace events, which Perfetto opens: a process a machine, a thread a lane of a rank.
std::string to_perfetto(const SimResult& result, const Fabric& fabric);

}  // namespace treering::sim
