// What hwloc's files and a live machine have in common: facts about CPUs and PCI functions as the
// operating system counts them, to be made into a graph.
#pragma once

#include <string>
#include <vector>

#include "topo/graph.hpp"

namespace treering::topo {

// Links between all pairs of NUMA nodes of a machine. None beyond kMaxNumaNodes: no machine has
// them, and pairs are many.
inline constexpr std::size_t kMaxNumaNodes = 128;
void join_numa_nodes(Graph& graph, const std::vector<NodeId>& numa);

struct NumaFact {
  int number = 0;
  CpuSet cpus;
};
struct CacheFact {
  int level = 3;
  std::int64_t bytes = 0;
  CpuSet cpus;
};
struct CpuFacts {
  std::vector<NumaFact> packages;  // the same facts as of a NUMA node
  std::vector<NumaFact> numa;
  std::vector<CacheFact> caches;  // that several cores share
  std::vector<NumaFact> cores;
  std::string arch, vendor;
  int family = 0, model = 0;
};

// Packages, NUMA nodes, shared caches and cores below `machine`. There is a NUMA node at least.
void add_cpus(Graph& graph, NodeId machine, const CpuFacts& facts);

// A PCI function, bridges (ports of switches) included.
struct PciFunction {
  std::string bus_id;
  std::uint32_t pci_class = 0;
  std::uint32_t vendor = 0;
  std::uint32_t device = 0;
  double lane_gt_s = 0;
  int width = 0;
  double raw_gb_s = 0;   // instead of the two above, before overheads
  int bridge = kNone;    // index of the function above; kNone: on a root bus
  std::string root_bus;  // "0000:17"
  NodeId numa = kNone;   // of the root bus, where known
  // GPUs and NICs:
  std::string name;  // NICs: empty if the system has none for it
  int number = kNone;
  int sm = 0;
  double port_gbit_s = 0;
  std::vector<std::string> more_ports;  // NICs with several
};

// Adds GPUs, NICs and what is above them below NUMA nodes; ports become switches. Returns for each
// function its node, or kNone. Functions without a NUMA node go to the first, and that is said.
std::vector<NodeId> add_pci(Graph& graph, NodeId machine,
                            const std::vector<PciFunction>& functions);

// The compute capability that a product's name tells: "Tesla V100" -> 70; 0 if unknown.
int sm_of_model(const std::string& model);

}  // namespace treering::topo
