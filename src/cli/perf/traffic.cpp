#include "cli/perf/traffic.hpp"

#include <optional>
#include <vector>

#include "algos/registry.hpp"
#include "cli/explain/volume.hpp"
#include "core/types.hpp"

namespace treering::perf {
namespace {

const algos::Algorithm* find(Op op, const std::string& name) {
  for (const algos::Algorithm& algorithm : algos::all_algorithms()) {
    if (name == algorithm.name &&
        std::string(op_name(op)) == collective_name(algorithm.collective)) {
      return &algorithm;
    }
  }
  return nullptr;
}

// In units of the whole vector; `n` ranks.
std::uint64_t least_bytes(const Case& what, std::uint64_t n) {
  const std::uint64_t whole = total_bytes(what, static_cast<int>(n));
  const std::uint64_t kept = what.in_place != 0 ? 1 : 0;  // copies of the vector that stay
  switch (what.op) {
    case Op::kBarrier:
      return 0;
    case Op::kReduce:
    case Op::kReduceScatter:
      return (n + 1) * whole;
    case Op::kBroadcast:
    case Op::kAllGather:
      return (1 + n - kept) * whole;
    case Op::kGather:
    case Op::kScatter:
      return 2 * (whole - kept * (whole / n));
    case Op::kAllToAll:
      return 2 * (n - kept) * whole;
    case Op::kScan:
      return (2 * n - kept) * whole;  // in place the first rank's result is there
    case Op::kExscan:
      return 2 * (n - 1) * whole;  // nothing to the first rank, nothing from the last
    default:
      return 2 * n * whole;
  }
}

}  // namespace

MemoryTraffic memory_traffic(const Case& what, int ranks, const std::string& algorithm) {
  const algos::Algorithm* named = algorithm.empty() ? nullptr : find(what.op, algorithm);
  if (named == nullptr || !named->supports(ranks)) {
    return {least_bytes(what, static_cast<std::uint64_t>(ranks)), true};
  }
  std::vector<algos::Schedule> schedules;
  for (int r = 0; r < ranks; ++r) {
    schedules.push_back(algos::record(*named, r, ranks, what.root));
  }
  const explain::Cut cut =
      explain::cut_vector(*named, ranks, total_bytes(what, ranks), static_cast<Type>(what.type), 0);
  return {explain::memory_bytes(schedules, cut, what.in_place != 0), false};
}

}  // namespace treering::perf
