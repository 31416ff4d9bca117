// How much of a GPU's memory traffic an operation makes: the ceiling of ranks that share a GPU,
// where no link between GPUs limits them.
#pragma once

#include <cstdint>
#include <string>

#include "perf/case.hpp"

namespace treering::perf {

struct MemoryTraffic {
  std::uint64_t bytes = 0;  // read and written by all ranks together, for one operation
  // Only what every algorithm must: inputs read once, outputs written once. It is all that is known
  // where the algorithm is not named (our own choice, other libraries).
  bool at_least = false;
};

// `algorithm`: one of ours, whose schedule is then counted, slots included; or "". The flags in the
// lines of protocols LL and LL128 are not counted.
MemoryTraffic memory_traffic(const Case& what, int ranks, const std::string& algorithm);

}  // namespace treering::perf
