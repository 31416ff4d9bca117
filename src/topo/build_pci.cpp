// From PCI functions to devices and switches. A switch shows as one upstream port, and a downstream
// port for each thing below it; a root port leads to either. So bridges alternate, counted from the
// root: root port, upstream, downstream, upstream, ... A switch is named after its upstream port.
#include <algorithm>
#include <cmath>
#include <map>

#include "topo/bandwidth.hpp"
#include "topo/build.hpp"
#include "topo/pci_class.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

class PciBuilder {
 public:
  PciBuilder(Graph& graph, NodeId machine, const std::vector<PciFunction>& functions)
      : graph_(graph), functions_(functions), nodes_(functions.size(), kNone) {
    for (NodeId id : graph.all(NodeKind::kNuma)) {
      if (graph.ancestor(id, NodeKind::kMachine) == machine) numa_.push_back(id);
    }
  }

  std::vector<NodeId> build() {
    int gpus = 0;
    for (int i = 0; i < static_cast<int>(functions_.size()); ++i) {
      const PciFunction& it = function(i);
      if (is_gpu_class(it.pci_class, it.vendor))
        add_gpu(i, gpus++);
      else if (is_nic_class(it.pci_class))
        add_nic(i);
    }
    if (!homeless_.empty()) {
      graph_.report(FindingKind::kNumaUnknown, "nobody says which NUMA node " +
                                                   join_names(graph_, homeless_) +
                                                   (homeless_.size() == 1 ? " is at" : " are at") +
                                                   "; assumed " + graph_.at(numa_.front()).name);
    }
    return nodes_;
  }

 private:
  const PciFunction& function(int i) const { return functions_[static_cast<std::size_t>(i)]; }

  // Bridges above a function, the nearest first. Chains are short; a longer one is a loop.
  std::vector<int> bridges_above(int i) const {
    constexpr std::size_t kMost = 64;
    std::vector<int> chain;
    for (int at = function(i).bridge; at != kNone && chain.size() < kMost;
         at = function(at).bridge) {
      chain.push_back(at);
    }
    return chain;
  }

  // The node that a function hangs at.
  NodeId place(int i) {
    const std::vector<int> chain = bridges_above(i);
    const int depth = static_cast<int>(chain.size());  // of the nearest bridge; 1: a root port
    if (depth <= 1) return host_bridge(i);
    const int upstream = depth % 2 == 0 ? 0 : 1;  // index in the chain
    return pci_switch(chain[static_cast<std::size_t>(upstream)]);
  }

  NodeId pci_switch(int upstream) {
    NodeId& node = nodes_[static_cast<std::size_t>(upstream)];
    if (node != kNone) return node;
    // The port above this one belongs to the next switch, or is a root port.
    const NodeId parent = place(upstream);
    node = graph_.add(NodeKind::kPciSwitch, "PCI switch " + function(upstream).bus_id, parent);
    fill(node, upstream);
    return node;
  }

  NodeId host_bridge(int i) {
    const PciFunction& it = function(i);
    const auto [entry, added] = host_bridges_.try_emplace(it.root_bus, kNone);
    if (!added) return entry->second;
    const NodeId numa = it.numa != kNone ? it.numa : numa_.front();
    entry->second = graph_.add(NodeKind::kHostBridge, "host bridge " + it.root_bus, numa);
    graph_.join_to_parent(entry->second, LinkKind::kHost);
    if (it.numa == kNone && numa_.size() > 1) homeless_.push_back(entry->second);
    return entry->second;
  }

  void fill(NodeId node, int i) {
    const PciFunction& it = function(i);
    Node& device = graph_.at(node);
    device.bus_id = it.bus_id;
    device.pci_class = it.pci_class;
    device.vendor = it.vendor;
    device.device = it.device;
    Link& link = graph_.link(graph_.join_to_parent(node, LinkKind::kPci));
    link.lane_gt_s = it.lane_gt_s;
    link.width = it.width;
    if (it.raw_gb_s > 0) set_lanes(link, it.raw_gb_s);
  }

  // Speed and width from their product; the widest link that has it is the most likely.
  static void set_lanes(Link& link, double raw_gb_s) {
    for (int width : {16, 8, 4, 2, 1}) {
      for (double gt_s : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
        const double encoding = gt_s < 8 ? 0.8 : gt_s < 64 ? 128.0 / 130 : 242.0 / 256;
        const double lanes_gb_s = gt_s * width / 8 * encoding;
        if (std::abs(lanes_gb_s - raw_gb_s) > 0.01 * raw_gb_s) continue;
        link.lane_gt_s = gt_s;
        link.width = width;
        return;
      }
    }
    // No link has that product: what is left of the raw bytes is 12 of 15.75 GB/s.
    constexpr double kPayload = 12.0 / 15.75;
    link.a_to_b_gb_s = link.b_to_a_gb_s = raw_gb_s * kPayload;
    link.source = Source::kDerived;
  }

  void add_gpu(int i, int order) {
    const PciFunction& it = function(i);
    const int number = it.number != kNone ? it.number : order;
    const NodeId parent = place(i);
    const NodeId id = graph_.add(NodeKind::kGpu, "GPU" + std::to_string(number), parent);
    nodes_[static_cast<std::size_t>(i)] = id;
    fill(id, i);
    graph_.at(id).number = number;
    graph_.at(id).sm = it.sm;
  }

  void add_nic(int i) {
    const PciFunction& it = function(i);
    const NodeId parent = place(i);
    const std::string name = it.name.empty() ? "NIC " + it.bus_id : it.name;
    const bool card = !it.more_ports.empty();
    const NodeId id = graph_.add(card ? NodeKind::kPciCard : NodeKind::kNic,
                                 card ? "card " + it.bus_id : name, parent);
    nodes_[static_cast<std::size_t>(i)] = id;
    fill(id, i);
    if (!card) return name_port(id, name, it.port_gbit_s);
    std::vector<std::string> ports = it.more_ports;
    ports.insert(ports.begin(), name);
    for (const std::string& port : ports) {
      const NodeId child = graph_.add(NodeKind::kNic, port, id);
      graph_.at(child).bus_id = it.bus_id;
      graph_.join_to_parent(child, LinkKind::kBoard);
      name_port(child, port, it.port_gbit_s);
    }
  }

  void name_port(NodeId id, const std::string& name, double gbit_s) {
    graph_.at(id).port_gbit_s = gbit_s;
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    const int number = parse_index(std::string_view(name).substr(std::min(digits, name.size())));
    graph_.at(id).number = number != kNone ? number : nics_;
    ++nics_;
  }

  Graph& graph_;
  const std::vector<PciFunction>& functions_;
  std::vector<NodeId> nodes_;  // by function
  std::vector<NodeId> numa_;
  std::map<std::string, NodeId> host_bridges_;  // by root bus
  std::vector<NodeId> homeless_;
  int nics_ = 0;
};

}  // namespace

std::vector<NodeId> add_pci(Graph& graph, NodeId machine,
                            const std::vector<PciFunction>& functions) {
  return PciBuilder(graph, machine, functions).build();
}

}  // namespace treering::topo
