#include <algorithm>
#include <utility>

#include "core/double_tree.hpp"
#include "sim/machine_shapes.hpp"
#include "sim/program.hpp"

namespace treering::sim {
namespace {

// Above so many ranks a timeline is of no use, and numbers of chunks need not be kept.
constexpr int kFewRanks = 256;

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0); }

}  // namespace

std::vector<std::uint64_t> cut_chunks(Collective collective, int chunks, std::uint64_t bytes) {
  constexpr std::uint64_t kLine = 64;
  if (collective == Collective::kBarrier) return {1};
  const auto count = static_cast<std::uint64_t>(chunks);
  std::uint64_t each = divide_up(bytes, count), total = bytes;
  const bool caller_cuts =
      collective == Collective::kAllGather || collective == Collective::kReduceScatter ||
      collective == Collective::kGather || collective == Collective::kScatter ||
      collective == Collective::kAllToAll;
  if (caller_cuts) {
    total = each * count;
  } else if (count > 1 && each > kLine) {
    each = divide_up(each, kLine) * kLine;
  }
  std::vector<std::uint64_t> result;
  for (std::uint64_t c = 0; c < count; ++c) {
    result.push_back(std::min(each, total - std::min(c * each, total)));
  }
  return result;
}

Workload workload_of(const algos::Algorithm& algorithm, int size, std::uint64_t bytes, int root,
                     std::shared_ptr<const HostMap> hosts) {
  Workload w;
  w.name = std::string(collective_name(algorithm.collective)) + " " + algorithm.name;
  w.ranks = size;
  w.chunk_bytes =
      cut_chunks(algorithm.collective, algos::chunk_count(algorithm, size, hosts.get()), bytes);
  w.share_by_size = algorithm.needs_hosts() && size > kFewRanks;
  w.record = [&algorithm, size, root, hosts = std::move(hosts)](int rank) {
    return algos::record(algorithm, rank, size, root, hosts.get());
  };
  return w;
}

Result<Workload> machine_workload(const std::string& name, const HostMap& hosts, int channels,
                                  std::uint64_t bytes) {
  const int machines = hosts.hosts(), ranks = hosts.ranks(), each = hosts.most_members();
  if (each * machines != ranks || !hosts.contiguous()) {
    return invalid_argument(name + " needs as many ranks on each machine, one after the other");
  }
  const bool ring = name == kMachineAlgorithms[0];
  if (!ring && name != kMachineAlgorithms[1]) {
    return invalid_argument("there is no algorithm over machines '" + name + "'");
  }
  Workload w;
  w.name = "all_reduce " + name;
  w.ranks = ranks;
  w.chunk_bytes = cut_chunks(Collective::kAllReduce, channels * (ring ? ranks : 2), bytes);
  w.share_by_size = ranks > kFewRanks;
  w.record = [ring, ranks, each, channels](int rank) {
    algos::TracePrims prims(rank, ranks, 0);
    if (ring) {
      rail_ring_all_reduce(prims, each, channels);
    } else {
      chain_tree_all_reduce(prims, each, channels);
    }
    return std::move(prims).take();
  };
  return w;
}

}  // namespace treering::sim
