// finish(), and bandwidth: what follows from the description, and what has to be assumed.
#include "topo/check.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "topo/bandwidth.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

void set_bandwidth(Link& link, double gb_s, Source source) {
  link.a_to_b_gb_s = link.b_to_a_gb_s = gb_s;
  link.source = source;
}

// Devices whose link had to be assumed, by what was assumed.
using Assumed = std::map<std::string, std::vector<NodeId>>;

void fill_pci(const Graph& graph, Link& link, Assumed& assumed) {
  double gb_s = pci_gb_s(link.lane_gt_s, link.width);
  if (gb_s > 0) return set_bandwidth(link, gb_s, Source::kDerived);
  const Node& device = graph.at(link.a);
  constexpr double kUsualGtS = 16;
  const double gt_s = is_pci_speed(link.lane_gt_s)    ? link.lane_gt_s
                      : device.kind == NodeKind::kGpu ? usual_pci_gt_s(device.sm)
                                                      : kUsualGtS;
  const int width = link.width > 0 && link.width <= 32 ? link.width : kUsualPciWidth;
  gb_s = pci_gb_s(gt_s, width);
  set_bandwidth(link, gb_s, Source::kAssumed);
  assumed[format_gb_s(gt_s) + " GT/s x" + std::to_string(width) + " (" + format_gb_s(gb_s) +
          " GB/s)"]
      .push_back(link.a);
}

void fill_gpu_link(const Graph& graph, Link& link, std::set<std::string>& unknown) {
  const Node& a = graph.at(link.a);
  const Node& b = graph.at(link.b);
  const bool xgmi = link.kind == LinkKind::kXgmi;
  const int known_a = xgmi ? a.gcn : a.sm;
  const int known_b = b.kind == NodeKind::kGpu ? (xgmi ? b.gcn : b.sm) : known_a;
  const int generation = std::min(known_a, known_b);
  const double each = xgmi ? xgmi_gb_s(generation) : nvlink_gb_s(generation);
  const bool machines = a.kind == NodeKind::kMachine;
  set_bandwidth(link, each * std::max(link.width, 1),
                generation > 0 ? Source::kDerived : Source::kAssumed);
  if (generation == 0 && !machines) unknown.insert(format_gb_s(each));
}

void fill_board(const Graph& graph, Link& link) {
  const double port_gb_s = graph.at(link.a).port_gbit_s / 8;
  set_bandwidth(link, port_gb_s > 0 ? port_gb_s : kHostGbS, Source::kDerived);
}

int machines_below(const Graph& graph, NodeId top) {
  int count = 0;
  for (NodeId machine : graph.all(NodeKind::kMachine)) {
    NodeId id = machine;
    while (id != kNone && id != top) id = graph.at(id).parent;
    count += id == top;
  }
  return count;
}

// The network of a cluster: each machine's share, and no switch narrower than what is below it.
void fill_network(const Graph& graph, Link& link) {
  constexpr double kMachineGbS = kUsualPortGbitS / 8;
  const bool leaf = graph.at(link.a).kind == NodeKind::kMachine;
  const int machines = leaf ? 1 : std::max(machines_below(graph, link.a), 1);
  set_bandwidth(link, kMachineGbS * machines, Source::kAssumed);
}

void report_assumed(Graph& graph, const Assumed& pci, const std::set<std::string>& gpu_links) {
  for (const auto& [what, devices] : pci) {
    graph.report(
        FindingKind::kSpeedUnknown,
        "PCIe speed or width of " + join_names(graph, devices) + " is not given; assumed " + what);
  }
  for (const std::string& each : gpu_links) {
    graph.report(FindingKind::kNvlinkAssumed,
                 "the generation of the GPUs is not given; assumed " + each + " GB/s a link");
  }
}

}  // namespace

void fill_bandwidth(Graph& graph) {
  Assumed pci;
  std::set<std::string> gpu_links;
  std::set<std::string> sockets;
  bool network = false;
  for (Link& link : graph.links) {
    if (link.source != Source::kUnknown) continue;
    switch (link.kind) {
      case LinkKind::kPci:
        fill_pci(graph, link, pci);
        break;
      case LinkKind::kNvlink:
      case LinkKind::kXgmi:
        fill_gpu_link(graph, link, gpu_links);
        break;
      case LinkKind::kBoard:
        fill_board(graph, link);
        break;
      case LinkKind::kHost:
        set_bandwidth(link, kHostGbS, Source::kDerived);
        break;
      case LinkKind::kC2c:
        set_bandwidth(link, kHostGbS, Source::kAssumed);
        break;
      case LinkKind::kSocket:
        set_bandwidth(link, socket_gb_s(graph.at(link.a)), Source::kAssumed);
        sockets.insert(format_gb_s(link.a_to_b_gb_s) + " GB/s each way, " +
                       (graph.at(link.a).cpu_vendor.empty() && graph.at(link.a).cpu_arch.empty()
                            ? "what old CPUs have: the model is not given"
                            : "by the CPU's model"));
        break;
      case LinkKind::kNetwork:
        fill_network(graph, link);
        network = true;
        break;
    }
  }
  report_assumed(graph, pci, gpu_links);
  for (const std::string& what : sockets) {
    graph.report(FindingKind::kSocketAssumed,
                 "no description says how fast NUMA nodes are joined; assumed " + what);
  }
  if (network) {
    graph.report(FindingKind::kNetworkAssumed,
                 "speeds of the network are not given; assumed 100 Gbit/s a machine, and switches "
                 "as wide as all machines below them");
  }
}

void finish(Graph& graph) {
  check_cpus(graph);
  check_devices(graph);
  check_nics(graph);
  fill_bandwidth(graph);
  check_gpu_links(graph);
  check_stated(graph);
  // Defects first; within a severity in the order in which they were found.
  std::stable_sort(
      graph.findings.begin(), graph.findings.end(),
      [](const Finding& a, const Finding& b) { return severity_of(a.kind) > severity_of(b.kind); });
}

}  // namespace treering::topo
