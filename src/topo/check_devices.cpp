// Checks of CPUs and devices: masks, numbers, addresses, bridges.
#include <algorithm>
#include <map>
#include <set>

#include "topo/check.hpp"
#include "topo/paths.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

// NUMA nodes by machine; those of a graph without machines are under kNone.
std::map<NodeId, std::vector<NodeId>> numa_nodes(const Graph& graph) {
  std::map<NodeId, std::vector<NodeId>> out;
  for (NodeId id : graph.all(NodeKind::kNuma)) {
    out[graph.ancestor(id, NodeKind::kMachine)].push_back(id);
  }
  return out;
}

void check_overlaps(Graph& graph, const std::vector<NodeId>& nodes) {
  std::set<NodeId> overlapping;
  int shared = kNone;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (std::size_t j = i + 1; j < nodes.size(); ++j) {
      const CpuSet& a = graph.at(nodes[i]).cpus;
      if (!a.overlaps(graph.at(nodes[j]).cpus)) continue;
      overlapping.insert({nodes[i], nodes[j]});
      for (int cpu : a.cpus()) {
        if (shared == kNone && graph.at(nodes[j]).cpus.has(cpu)) shared = cpu;
      }
    }
  }
  if (overlapping.empty()) return;
  graph.report(FindingKind::kOverlappingMasks,
               "CPU masks of " + join_names(graph, {overlapping.begin(), overlapping.end()}) +
                   " overlap (CPU " + std::to_string(shared) +
                   " is in several); the devices' places are kept, the masks not to be trusted");
}

void check_numbers(Graph& graph, const std::vector<NodeId>& nodes) {
  std::map<int, int> seen;
  for (NodeId id : nodes) {
    if (graph.at(id).number >= 0) ++seen[graph.at(id).number];
  }
  std::string missing;
  int next = 0;
  for (const auto& [number, times] : seen) {
    if (times > 1) {
      graph.report(FindingKind::kDuplicateNumber, "NUMA node " + std::to_string(number) +
                                                      " is described " + std::to_string(times) +
                                                      " times; kept apart");
    }
    constexpr int kMostGaps = 8;
    for (; next < number && number - next <= kMostGaps; ++next) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(next);
    }
    next = number + 1;
  }
  if (missing.empty()) return;
  graph.report(FindingKind::kNumaGap,
               "NUMA node " + missing + " is not described: it has no devices, or is hidden");
}

void check_bus_ids(Graph& graph) {
  std::map<std::pair<NodeId, std::string>, std::vector<NodeId>> by_id;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    const Node& node = graph.at(id);
    // What is on a card has the card's address: counted there, unless it is a GPU.
    const bool on_card = node.parent != kNone && graph.at(node.parent).kind == NodeKind::kPciCard;
    if (node.bus_id.empty() || node.kind == NodeKind::kPciCard) continue;
    if (on_card && node.kind != NodeKind::kGpu) continue;
    by_id[{graph.ancestor(id, NodeKind::kMachine), node.bus_id}].push_back(id);
  }
  for (const auto& [key, nodes] : by_id) {
    if (nodes.size() < 2) continue;
    const bool gpus = graph.at(nodes[0]).kind == NodeKind::kGpu;
    const std::string who =
        gpus ? join_names(graph, nodes) : std::to_string(nodes.size()) + " devices";
    graph.report(FindingKind::kDuplicateBusId,
                 who + " have one PCI address, " + key.second +
                     ": it does not name one of them; they are kept apart");
  }
}

void check_bridges(Graph& graph) {
  std::vector<NodeId> fake;
  for (NodeId id : graph.all(NodeKind::kPciSwitch)) {
    if (is_invented_bus_id(graph.at(id).bus_id)) fake.push_back(id);
  }
  if (fake.empty()) return;
  graph.report(FindingKind::kFakeBridge,
               join_names(graph, fake) +
                   " exist in no machine (domain ffff, bus ff): written to say which devices are "
                   "near each other; taken as switches");
}

void check_gpu_numbers(Graph& graph) {
  std::map<std::pair<NodeId, std::pair<int, int>>, std::vector<NodeId>> by_number;
  for (NodeId id : graph.all(NodeKind::kGpu)) {
    const Node& gpu = graph.at(id);
    by_number[{graph.ancestor(id, NodeKind::kMachine), {gpu.number, gpu.part}}].push_back(id);
  }
  for (const auto& [key, gpus] : by_number) {
    if (gpus.size() < 2) continue;
    graph.report(FindingKind::kDuplicateNumber, std::to_string(gpus.size()) + " GPUs are number " +
                                                    std::to_string(key.second.first) +
                                                    "; told apart by their address");
  }
}

}  // namespace

void check_cpus(Graph& graph) {
  for (const auto& [machine, nodes] : numa_nodes(graph)) {
    check_overlaps(graph, nodes);
    check_numbers(graph, nodes);
    std::vector<NodeId> without;
    for (NodeId id : nodes) {
      if (graph.at(id).cpus.empty()) without.push_back(id);
    }
    if (without.empty()) continue;
    graph.report(FindingKind::kCpusUnknown, "the CPUs of " + join_names(graph, without) +
                                                " are not given; ranks there are not pinned");
  }
}

void check_devices(Graph& graph) {
  check_bus_ids(graph);
  check_bridges(graph);
  check_gpu_numbers(graph);
  std::vector<NodeId> unknown;
  for (NodeId id : graph.all(NodeKind::kPciDevice)) {
    if (graph.at(id).pci_class == 0) unknown.push_back(id);
  }
  if (!unknown.empty()) {
    graph.report(FindingKind::kKindUnknown,
                 "the class of " + join_names(graph, unknown) +
                     " is not given; neither GPU nor NIC can be told, so none is assumed");
  }
  std::vector<NodeId> parts;
  for (NodeId id : graph.all(NodeKind::kGpu)) {
    if (graph.at(id).part != kNone) parts.push_back(id);
  }
  if (!parts.empty()) {
    graph.report(FindingKind::kPartitioned,
                 join_names(graph, parts) + " are parts of GPUs and share their links");
  }
}

void check_stated(Graph& graph) {
  int wrong = 0;
  std::string example;
  const Paths paths(graph);
  for (const StatedPair& stated : graph.stated) {
    if (stated.path == PathClass::kNvlink) continue;
    const Path path = paths.tree(stated.a, stated.b);
    if (path.path == stated.path || path.path == PathClass::kNoPath) continue;
    if (wrong++ == 0) {
      example = graph.at(stated.a).name + " and " + graph.at(stated.b).name + " are said to be " +
                path_class_name(stated.path) + ", the others' words make them " +
                path_class_name(path.path);
    }
  }
  if (wrong == 0) return;
  graph.report(FindingKind::kContradiction, "distances of " + std::to_string(wrong) +
                                                (wrong == 1 ? " pair fits" : " pairs fit") +
                                                " no tree: " + example +
                                                "; what is said of a pair is kept for it");
}

}  // namespace treering::topo
