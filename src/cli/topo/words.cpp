// Phrases that text and page share.
#include "cli/topo/view.hpp"
#include "topo/text.hpp"

namespace treering::topo_view {

using namespace topo;

std::string in_words(std::size_t count, const std::string& what) {
  const bool es = !what.empty() && (what.back() == 's' || what.back() == 'h');
  return std::to_string(count) + " " + what + (count == 1 ? "" : es ? "es" : "s");
}

std::string summary(const Graph& graph) {
  std::string text;
  for (NodeKind kind :
       {NodeKind::kMachine, NodeKind::kNetSwitch, NodeKind::kGroup, NodeKind::kGpu, NodeKind::kNic,
        NodeKind::kNvSwitch, NodeKind::kPciSwitch, NodeKind::kNuma, NodeKind::kCore}) {
    const std::size_t count = graph.all(kind).size();
    if (count == 0 || (kind == NodeKind::kMachine && count == 1)) continue;
    if (!text.empty()) text += ", ";
    text += in_words(count, node_kind_name(kind));
  }
  return text.empty() ? "nothing" : text;
}

std::string describe_link(const Link& link) {
  std::string text;
  const std::string gb_s = format_gb_s(link.a_to_b_gb_s);
  switch (link.kind) {
    case LinkKind::kPci:
      if (link.lane_gt_s > 0 && link.width > 0) {
        text = format_gb_s(link.lane_gt_s) + " GT/s x" + std::to_string(link.width) + ", ";
      }
      text += gb_s + " GB/s";
      break;
    case LinkKind::kNvlink:
    case LinkKind::kXgmi:
      text = std::string(link_kind_name(link.kind)) + " x" + std::to_string(link.width) + ", " +
             gb_s + " GB/s";
      break;
    case LinkKind::kHost:
    case LinkKind::kBoard:
      return "";  // limited by what hangs at it
    default:
      text = std::string(link_kind_name(link.kind)) + " " + gb_s + " GB/s";
  }
  if (link.source == Source::kAssumed) text += " assumed";
  return text;
}

std::string describe_node(const Graph& graph, NodeId id) {
  const Node& node = graph.at(id);
  std::string text;
  const auto add = [&](const std::string& part) {
    if (part.empty()) return;
    text += (text.empty() ? "" : ", ") + part;
  };
  if (!node.bus_id.empty() && node.name.find(node.bus_id) == std::string::npos) add(node.bus_id);
  if (node.sm > 0 && node.gcn == 0) add("sm_" + std::to_string(node.sm));
  if (node.gcn > 0) add("gfx" + std::to_string(node.gcn));
  if (!node.cpus.empty()) add("CPUs " + node.cpus.to_list());
  if (!node.cpu_vendor.empty()) {
    add(node.cpu_vendor + " family " + std::to_string(node.cpu_family) + " model " +
        std::to_string(node.cpu_model));
  }
  if (node.distance_us > 0) add("within " + format_gb_s(node.distance_us) + " us");
  if (node.port_gbit_s > 0) add(format_gb_s(node.port_gbit_s) + " Gbit/s");
  if (!node.usable) add("not used");
  if (node.uplink != kNone) add(describe_link(graph.link(node.uplink)));
  return text;
}

std::vector<NodeId> matrix_endpoints(const Graph& graph, std::size_t most) {
  std::vector<NodeId> all = graph.endpoints();
  if (all.size() <= most) return all;
  all = graph.all(NodeKind::kGpu);
  return all.size() <= most ? all : std::vector<NodeId>();
}

std::string pair_text(const Path& path) {
  if (path.path == PathClass::kSelf || path.path == PathClass::kNoPath) return path_label(path);
  return path_label(path) + " " + format_gb_s(path.gb_s);
}

}  // namespace treering::topo_view
