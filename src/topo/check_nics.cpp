// Checks of network interfaces: which are real, fast, near their GPUs, in order.
#include <algorithm>
#include <map>
#include <set>

#include "topo/bandwidth.hpp"
#include "topo/check.hpp"
#include "topo/paths.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

constexpr double kSlowGbitS = 10;

bool is_on_pci(const Graph& graph, NodeId nic) {
  return !graph.at(nic).bus_id.empty() || graph.ancestor(nic, NodeKind::kPciCard) != kNone;
}

void check_virtual(Graph& graph) {
  std::vector<NodeId> virtuals;
  std::vector<NodeId> unplaced;
  for (NodeId id : graph.all(NodeKind::kNic)) {
    Node& nic = graph.at(id);
    if (is_on_pci(graph, id)) continue;
    if (!nic.usable || is_virtual_interface(nic.name)) {
      nic.usable = false;
      virtuals.push_back(id);
    } else {
      unplaced.push_back(id);
    }
  }
  if (!virtuals.empty()) {
    graph.report(FindingKind::kVirtualInterface,
                 join_names(graph, virtuals) + verb(virtuals.size(), " has", " have") +
                     " no hardware (bridges, tunnels, containers' ends); not used");
  }
  if (!unplaced.empty() && graph.stated.empty()) {
    graph.report(FindingKind::kNicNotOnPci, join_names(graph, unplaced) +
                                                verb(unplaced.size(), " hangs", " hang") +
                                                " at no PCI device; assumed to be at " +
                                                graph.at(graph.at(unplaced[0]).parent).name);
  }
}

std::vector<NodeId> usable_nics(const Graph& graph, NodeId machine) {
  std::vector<NodeId> out;
  for (NodeId id : graph.all(NodeKind::kNic)) {
    if (graph.at(id).usable && graph.ancestor(id, NodeKind::kMachine) == machine) out.push_back(id);
  }
  return out;
}

void check_speeds(Graph& graph, const std::vector<NodeId>& nics, bool gpus) {
  std::vector<NodeId> slow, unknown;
  std::set<double> speeds;
  for (NodeId id : nics) {
    Node& nic = graph.at(id);
    if (nic.port_gbit_s == 0) {
      nic.port_gbit_s = kUsualPortGbitS;
      unknown.push_back(id);
    } else if (nic.port_gbit_s <= kSlowGbitS) {
      slow.push_back(id);
    } else {
      speeds.insert(nic.port_gbit_s);
    }
  }
  if (!unknown.empty()) {
    graph.report(FindingKind::kNetworkAssumed, "port speed of " + join_names(graph, unknown) +
                                                   " is not given; assumed 100 Gbit/s");
  }
  if (!slow.empty() && gpus) {
    graph.report(FindingKind::kSlowNic, join_names(graph, slow) +
                                            verb(slow.size(), " has", " have") +
                                            " 10 Gbit/s or less: for management, not for data");
  }
  if (speeds.size() > 1) {
    graph.report(FindingKind::kUnevenNics, "NICs have different speeds, from " +
                                               format_gb_s(*speeds.begin()) + " to " +
                                               format_gb_s(*speeds.rbegin()) + " Gbit/s");
  }
}

void check_cards(Graph& graph) {
  for (NodeId card : graph.all(NodeKind::kPciCard)) {
    std::vector<NodeId> ports;
    for (NodeId child : graph.children(card)) {
      if (graph.at(child).kind == NodeKind::kNic) ports.push_back(child);
    }
    if (ports.size() < 2) continue;
    graph.report(FindingKind::kSharedCard, join_names(graph, ports) + " are ports of one card, " +
                                               graph.at(card).bus_id + ", and share its PCIe link");
  }
}

PathClass class_of(const Graph& graph, const Paths& paths, NodeId gpu, NodeId nic) {
  for (const StatedPair& stated : graph.stated) {
    if (stated.a == gpu && stated.b == nic) return stated.path;
  }
  return paths.tree(gpu, nic).path;
}

struct Nearest {
  PathClass path = PathClass::kNoPath;
  std::vector<NodeId> nics;
};

Nearest nearest_of(const Graph& graph, const Paths& paths, NodeId gpu,
                   const std::vector<NodeId>& nics) {
  Nearest nearest;
  for (NodeId nic : nics) {
    const PathClass path = class_of(graph, paths, gpu, nic);
    if (path < nearest.path) nearest = {path, {}};
    if (path == nearest.path) nearest.nics.push_back(nic);
  }
  return nearest;
}

void check_distance(Graph& graph, const std::vector<NodeId>& gpus, const std::vector<Nearest>& near,
                    std::size_t nics) {
  std::map<PathClass, std::vector<NodeId>> by_class;
  for (std::size_t i = 0; i < gpus.size(); ++i) by_class[near[i].path].push_back(gpus[i]);
  if (by_class.size() > 1) {
    std::string text;
    for (const auto& [path, members] : by_class) {
      text += (text.empty() ? "" : "; ") + std::string(path_class_name(path)) + " for " +
              join_names(graph, members);
    }
    graph.report(FindingKind::kUnevenNics, "the nearest NIC is " + text);
  }
  if (nics != gpus.size()) {
    graph.report(FindingKind::kUnevenNics,
                 std::to_string(gpus.size()) + verb(gpus.size(), " GPU and ", " GPUs and ") +
                     std::to_string(nics) + verb(nics, " NIC", " NICs") + " for data");
  }
}

// With GPUs in order, the NICs beside them should be in order, too.
void check_order(Graph& graph, const std::vector<NodeId>& gpus, const std::vector<Nearest>& near) {
  NodeId last_gpu = kNone;
  NodeId last_nic = kNone;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (near[i].path > PathClass::kPxb || near[i].nics.size() != 1) continue;
    const NodeId nic = near[i].nics[0];
    if (last_nic != kNone && graph.at(nic).number < graph.at(last_nic).number) {
      graph.report(FindingKind::kNicOrder,
                   "NICs are numbered against the GPUs: " + graph.at(last_gpu).name +
                       " is beside " + graph.at(last_nic).name + ", but " + graph.at(gpus[i]).name +
                       " beside " + graph.at(nic).name);
      return;
    }
    last_gpu = gpus[i];
    last_nic = nic;
  }
}

}  // namespace

void check_nics(Graph& graph) {
  if (graph.all(NodeKind::kNic).empty()) return;
  check_virtual(graph);
  check_cards(graph);
  std::map<NodeId, std::vector<NodeId>> machines;
  for (NodeId machine : graph.all(NodeKind::kMachine)) machines[machine];
  for (NodeId gpu : graph.all(NodeKind::kGpu)) {
    machines[graph.ancestor(gpu, NodeKind::kMachine)].push_back(gpu);
  }
  for (auto& [machine, gpus] : machines) {
    std::sort(gpus.begin(), gpus.end(), [&](NodeId a, NodeId b) {
      return std::pair(graph.at(a).number, a) < std::pair(graph.at(b).number, b);
    });
    std::vector<NodeId> nics = usable_nics(graph, machine);
    check_speeds(graph, nics, !gpus.empty());
    std::erase_if(nics, [&](NodeId id) { return graph.at(id).port_gbit_s <= kSlowGbitS; });
    if (nics.empty() || gpus.empty()) continue;
    std::vector<Nearest> near;
    const Paths paths(graph);
    for (NodeId gpu : gpus) near.push_back(nearest_of(graph, paths, gpu, nics));
    check_distance(graph, gpus, near, nics.size());
    check_order(graph, gpus, near);
  }
}

}  // namespace treering::topo
