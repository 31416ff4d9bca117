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

// Of two nodes in either order.
std::uint64_t key_of(NodeId a, NodeId b, std::uint64_t kind) {
  const auto low = static_cast<std::uint64_t>(std::min(a, b));
  const auto high = static_cast<std::uint64_t>(std::max(a, b));
  return kind << 60 | low << 30 | high;  // a file of 64 MiB has fewer than 2^30 nodes
}

}  // namespace

Paths::Paths(const Graph& graph) : graph_(graph) {
  for (LinkId id = 0; id < static_cast<LinkId>(graph.links.size()); ++id) {
    const Link& link = graph.link(id);
    links_.try_emplace(key_of(link.a, link.b, static_cast<std::uint64_t>(link.kind)), id);
    if (link.kind != LinkKind::kNvlink) continue;
    for (const auto& [end, other] : {std::pair(link.a, link.b), std::pair(link.b, link.a)}) {
      if (graph.at(other).kind == NodeKind::kNvSwitch) nvswitches_[end].push_back(other);
    }
  }
  for (const StatedPair& pair : graph.stated) {
    const bool usable = pair.path >= PathClass::kPix && pair.path <= PathClass::kSys;
    if (usable) stated_[key_of(pair.a, pair.b, 0)] = pair.path;
  }
}

LinkId Paths::find(NodeId a, NodeId b, LinkKind kind) const {
  const auto it = links_.find(key_of(a, b, static_cast<std::uint64_t>(kind)));
  return it == links_.end() ? kNone : it->second;
}

NodeId Paths::nvswitch_of(NodeId id) const {
  const auto it = nvswitches_.find(id);
  return it == nvswitches_.end() ? kNone : it->second.front();
}

void Paths::cross_sockets(Path& path, NodeId from_numa, NodeId to_numa) const {
  if (from_numa == kNone || to_numa == kNone || from_numa == to_numa) return;
  const LinkId socket = find(from_numa, to_numa, LinkKind::kSocket);
  if (socket != kNone) add_hop(graph_, path, socket, from_numa);
}

Path Paths::direct(NodeId from, NodeId to) const {
  Path path;
  for (LinkKind kind : {LinkKind::kNvlink, LinkKind::kXgmi}) {
    const LinkId link = find(from, to, kind);
    if (link == kNone) continue;
    add_hop(graph_, path, link, from);
    path.path = PathClass::kNvlink;
    path.nvlinks = graph_.link(link).width;
    return path;
  }
  const auto nvswitches = nvswitches_.find(from);
  if (nvswitches == nvswitches_.end()) return path;
  for (NodeId nvswitch : nvswitches->second) {
    const LinkId up = find(from, nvswitch, LinkKind::kNvlink);
    const LinkId down = find(nvswitch, to, LinkKind::kNvlink);
    if (down == kNone) continue;
    add_hop(graph_, path, up, from);
    add_hop(graph_, path, down, nvswitch);
    path.path = PathClass::kNvlink;
    path.nvlinks = std::min(graph_.link(up).width, graph_.link(down).width);
    return path;
  }
  return path;
}

Path Paths::tree(NodeId from, NodeId to) const {
  const Graph& graph = graph_;
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
  cross_sockets(path, numa_of(up), numa_of(down));
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

Path Paths::best(NodeId from, NodeId to) const {
  if (from == to) return tree(from, to);
  Path direct_one = direct(from, to);
  if (!direct_one.hops.empty()) return direct_one;
  Path path = tree(from, to);
  const auto stated = stated_.find(key_of(from, to, 0));
  if (stated != stated_.end()) path.path = stated->second;
  return path;
}

std::string path_label(const Path& path) {
  std::string text = path_class_name(path.path);
  if (path.path == PathClass::kNvlink) text += std::to_string(path.nvlinks);
  return text;
}

}  // namespace treering::topo
