#include "topo/paths.hpp"

#include <algorithm>

namespace treering::topo {
namespace {

// From a node to the root, itself first.
std::vector<NodeId> chain_of(const Graph& graph, NodeId id) {
  std::vector<NodeId> chain;
  for (; id != kNone; id = graph.at(id).parent) chain.push_back(id);
  return chain;
}

void add_hop(const Graph& graph, Path& path, LinkId id, NodeId from) {
  const Link& link = graph.link(id);
  const bool a_to_b = link.a == from;
  const double gb_s = a_to_b ? link.a_to_b_gb_s : link.b_to_a_gb_s;
  path.gb_s = path.hops.empty() ? gb_s : std::min(path.gb_s, gb_s);
  path.source = path.hops.empty() ? link.source : std::max(path.source, link.source);
  path.hops.push_back({id, a_to_b});
}

// The class of a path whose two chains meet at `top`. below: the nodes between, both sides.
PathClass classify(const Graph& graph, NodeId top, const std::vector<NodeId>& below) {
  int switches = graph.at(top).kind == NodeKind::kPciSwitch ? 1 : 0;
  int bridges = 0;
  for (NodeId id : below) {
    switches += graph.at(id).kind == NodeKind::kPciSwitch;
    bridges += graph.at(id).kind == NodeKind::kHostBridge;
  }
  switch (graph.at(top).kind) {
    case NodeKind::kPciCard:
    case NodeKind::kPciSwitch:
      return switches > 1 ? PathClass::kPxb : PathClass::kPix;
    case NodeKind::kHostBridge:
      return PathClass::kPhb;
    // Where host bridges are not described, they cannot be told apart.
    case NodeKind::kNuma:
      return bridges > 1 ? PathClass::kNode : PathClass::kPhb;
    case NodeKind::kPackage:
    case NodeKind::kMachine:
      return PathClass::kSys;
    default:
      return PathClass::kNetwork;
  }
}

// Over NUMA nodes: the link between them, where both sides have one.
void cross_sockets(const Graph& graph, Path& path, NodeId from_numa, NodeId to_numa) {
  if (from_numa == kNone || to_numa == kNone || from_numa == to_numa) return;
  const LinkId socket = graph.find_link(from_numa, to_numa, LinkKind::kSocket);
  if (socket != kNone) add_hop(graph, path, socket, from_numa);
}

Path direct_path(const Graph& graph, NodeId from, NodeId to) {
  Path path;
  for (LinkKind kind : {LinkKind::kNvlink, LinkKind::kXgmi}) {
    const LinkId link = graph.find_link(from, to, kind);
    if (link == kNone) continue;
    add_hop(graph, path, link, from);
    path.path = PathClass::kNvlink;
    path.nvlinks = graph.link(link).width;
    return path;
  }
  for (NodeId nvswitch : graph.all(NodeKind::kNvSwitch)) {
    const LinkId up = graph.find_link(from, nvswitch, LinkKind::kNvlink);
    const LinkId down = graph.find_link(nvswitch, to, LinkKind::kNvlink);
    if (up == kNone || down == kNone) continue;
    add_hop(graph, path, up, from);
    add_hop(graph, path, down, nvswitch);
    path.path = PathClass::kNvlink;
    path.nvlinks = std::min(graph.link(up).width, graph.link(down).width);
    return path;
  }
  return path;
}

}  // namespace

Path tree_path(const Graph& graph, NodeId from, NodeId to) {
  Path path;
  if (from == to) {
    path.path = PathClass::kSelf;
    return path;
  }
  std::vector<NodeId> up = chain_of(graph, from);
  std::vector<NodeId> down = chain_of(graph, to);
  NodeId top = kNone;
  while (!up.empty() && !down.empty() && up.back() == down.back()) {
    top = up.back();
    up.pop_back();
    down.pop_back();
  }
  if (top == kNone) return path;
  for (NodeId id : up) {
    if (graph.at(id).uplink != kNone) add_hop(graph, path, graph.at(id).uplink, id);
  }
  const auto numa_of = [&](const std::vector<NodeId>& chain) {
    const auto it = std::find_if(chain.begin(), chain.end(),
                                 [&](NodeId id) { return graph.at(id).kind == NodeKind::kNuma; });
    return it == chain.end() ? kNone : *it;
  };
  cross_sockets(graph, path, numa_of(up), numa_of(down));
  std::reverse(down.begin(), down.end());
  for (NodeId id : down) {
    if (graph.at(id).uplink != kNone) {
      add_hop(graph, path, graph.at(id).uplink, graph.at(id).parent);
    }
  }
  std::vector<NodeId> below = up;
  below.insert(below.end(), down.begin(), down.end());
  path.path = classify(graph, top, below);
  if (path.hops.empty()) path.path = PathClass::kNoPath;
  return path;
}

Path best_path(const Graph& graph, NodeId from, NodeId to) {
  if (from == to) return tree_path(graph, from, to);
  Path direct = direct_path(graph, from, to);
  if (!direct.hops.empty()) return direct;
  Path path = tree_path(graph, from, to);
  for (const StatedPair& stated : graph.stated) {
    const bool same = (stated.a == from && stated.b == to) || (stated.a == to && stated.b == from);
    const bool usable = stated.path >= PathClass::kPix && stated.path <= PathClass::kSys;
    if (same && usable) path.path = stated.path;
  }
  return path;
}

std::string path_label(const Path& path) {
  std::string text = path_class_name(path.path);
  if (path.path == PathClass::kNvlink) text += std::to_string(path.nvlinks);
  return text;
}

}  // namespace treering::topo
