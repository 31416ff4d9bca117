#include "topo/rail_paths.hpp"

#include <algorithm>

namespace treering::topo {

RailPaths::RailPaths(const Graph& graph) : graph_(graph), paths_(graph) {
  for (NodeId machine : graph.all(NodeKind::kMachine)) links_[machine];
  for (LinkId id = 0; id < static_cast<LinkId>(graph.links.size()); ++id) {
    const Link& link = graph.link(id);
    if (graph.at(link.a).kind != NodeKind::kMachine) continue;
    links_[link.a].push_back(id);
    if (link.kind != LinkKind::kNetwork) continue;
    network_links_[link.a].push_back(id);
    rails_ = std::max(rails_, network_links_[link.a].size());
  }
}

Path RailPaths::best(NodeId a, NodeId b, std::size_t rail) const {
  Path path = paths_.best(a, b);
  if (path.path == PathClass::kNvlink || rail == 0) return path;
  const auto from = network_links_.find(a), to = network_links_.find(b);
  if (from == network_links_.end() || to == network_links_.end()) return path;
  if (rail >= from->second.size() || rail >= to->second.size()) return path;
  const LinkId up = from->second[rail], down = to->second[rail];
  const NodeId first = graph_.link(up).b, last = graph_.link(down).b;
  Path over = first == last ? Path() : paths_.tree(first, last);
  over.path = PathClass::kNetwork;
  over.hops.insert(over.hops.begin(), {up, true});
  over.hops.push_back({down, false});
  return over;
}

const std::vector<LinkId>& RailPaths::links_of(NodeId machine) const { return links_.at(machine); }

}  // namespace treering::topo
