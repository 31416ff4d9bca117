// Rings over machines whose insides are not described. Thousands of them need no search: in the
// order of the tree, a ring crosses the uplink of each switch once each way, and no ring crosses it
// less. What remains is to use all machines' links: the machines of an NVLink domain take turns to
// be the ones that data enters and leaves by, and rings of several rails take one each.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "topo/rail_paths.hpp"
#include "topo/ring_search.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

using Group = std::vector<NodeId>;

class ClusterSearch {
 public:
  ClusterSearch(const Graph& graph, const std::vector<NodeId>& machines,
                const SearchOptions& options)
      : graph_(graph), paths_(graph), options_(options) {
    rings_.problem.members = machines;
    for (std::size_t i = 0; i < machines.size(); ++i) vertex_[machines[i]] = static_cast<int>(i);
  }

  ClusterRings run() {
    make_groups();
    const std::size_t rails = paths_.rails();
    std::size_t widest = 1;
    for (const Group& group : groups_) {
      widest = std::max(widest, group.size());
      rings_.group_sizes.push_back(group.size());
    }
    // Pair k enters a group at its member 2k and leaves at the next: each member is an end once. Of
    // an odd number each is an end twice.
    const std::size_t ends = widest % 2 == 0 ? widest / 2 : widest;
    const std::size_t stride = widest % 2 == 0 ? 2 : 1;
    std::size_t pairs = std::max(groups_.size() > 1 ? ends : 1, rails);
    pairs = std::min(pairs, static_cast<std::size_t>(options_.max_pairs));
    for (std::size_t k = 0; k < pairs; ++k) add_circle(k * stride, k % rails);
    share_out();
    prove();
    explain(widest, rails, pairs);
    return std::move(rings_);
  }

 private:
  // Machines in the order of the tree, those of one NVLink domain together.
  void make_groups() {
    std::vector<std::vector<NodeId>> below(graph_.nodes.size());
    for (NodeId id = 1; id < static_cast<NodeId>(graph_.nodes.size()); ++id) {
      if (graph_.at(id).parent != kNone) {
        below[static_cast<std::size_t>(graph_.at(id).parent)].push_back(id);
      }
    }
    std::map<NodeId, std::size_t> group_of_domain;
    std::vector<NodeId> open = {0};
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      const std::vector<NodeId>& children = below[static_cast<std::size_t>(id)];
      open.insert(open.end(), children.rbegin(), children.rend());
      if (!vertex_.count(id)) continue;
      const NodeId domain = paths_.domain_of(id);
      const auto known = group_of_domain.find(domain);
      if (domain != kNone && known != group_of_domain.end()) {
        groups_[known->second].push_back(id);
        continue;
      }
      if (domain != kNone) group_of_domain[domain] = groups_.size();
      groups_.push_back({id});
    }
  }

  // Every second group backwards, so that rings stay on the places, and the rails, of their ends.
  void add_circle(std::size_t first, std::size_t rail) {
    std::vector<NodeId> order;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      Group group = groups_[g];
      // From member `first`, all others, to the member after it.
      std::rotate(group.begin(), group.begin() + static_cast<std::ptrdiff_t>(first % group.size()),
                  group.end());
      std::reverse(group.begin() + 1, group.end());
      if (g % 2 == 1) std::reverse(group.begin(), group.end());
      order.insert(order.end(), group.begin(), group.end());
    }
    Circle circle;
    for (std::size_t i = 0; i < order.size(); ++i) {
      circle.vertices.push_back(vertex_.at(order[i]));
      circle.routes.push_back(route(order[i], order[(i + 1) % order.size()], rail));
    }
    rings_.solution.circles.push_back(std::move(circle));
    rings_.rails.push_back(rail);
  }

  const Route* route(NodeId a, NodeId b, std::size_t rail) {
    const Path path = paths_.best(a, b, rail);
    if (path.hops.empty()) rings_.joined = false;
    Route route;
    route.path = path.path;
    for (const Hop& hop : path.hops) route.resources.push_back(index_of(hop.link));
    rings_.solution.steps += static_cast<std::int64_t>(path.hops.size());
    rings_.routes.push_back(std::make_unique<Route>(std::move(route)));
    return rings_.routes.back().get();
  }

  int index_of(LinkId link) {
    RingProblem& problem = rings_.problem;
    const auto [it, added] = index_.try_emplace(link, static_cast<int>(problem.resources.size()));
    if (added) {
      problem.resources.push_back({link, kNone});
      problem.capacity.push_back(capacity_of(graph_, problem.resources.back()));
    }
    return it->second;
  }

  // All pairs equally fast, as fast as the fullest link lets them be.
  void share_out() {
    RingSolution& solution = rings_.solution;
    solution.even = true;
    solution.gb_s.assign(solution.circles.size(), 1);
    const std::vector<double> loads = loads_of(rings_.problem, solution.circles, solution.gb_s);
    double most = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < loads.size(); ++i) {
      if (loads[i] > 0) most = std::min(most, rings_.problem.capacity[i] / loads[i]);
    }
    solution.gb_s.assign(solution.circles.size(), most);
  }

  // A ring enters and leaves whatever has machines inside and outside, so the links at its edge
  // limit all rings together: at a machine, a domain, a switch. The tightest of them is the bound.
  void prove() {
    std::map<NodeId, std::set<NodeId>> insides;
    for (NodeId machine : rings_.problem.members) {
      insides[machine].insert(machine);
      const NodeId domain = paths_.domain_of(machine);
      if (domain != kNone) insides[domain].insert(machine);
      for (NodeId id = graph_.at(machine).parent; id != kNone; id = graph_.at(id).parent) {
        if (graph_.at(id).kind == NodeKind::kNetSwitch) insides[id].insert(machine);
      }
    }
    std::vector<LinkId> tightest;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [top, inside] : insides) {
      if (inside.size() == rings_.problem.members.size()) continue;
      const std::vector<LinkId> edge = edge_of(top, inside);
      double sum = 0;
      for (LinkId link : edge) sum += capacity_of(graph_, {link, kNone});
      rings_.solution.steps += static_cast<std::int64_t>(edge.size());
      if (sum >= least) continue;
      least = sum;
      tightest = edge;
    }
    rings_.solution.bound_gb_s = tightest.empty() ? 0 : least;
    for (LinkId link : tightest) index_of(link);
    rings_.solution.prices.assign(rings_.problem.resources.size(), 0);
    for (LinkId link : tightest) {
      rings_.solution.prices[static_cast<std::size_t>(index_of(link))] = 1;
    }
  }

  std::vector<LinkId> edge_of(NodeId top, const std::set<NodeId>& inside) const {
    std::vector<LinkId> edge;
    const bool is_switch = graph_.at(top).kind == NodeKind::kNetSwitch;
    if (is_switch && graph_.at(top).uplink != kNone) edge.push_back(graph_.at(top).uplink);
    for (NodeId machine : inside) {
      for (LinkId link : paths_.links_of(machine)) {
        const NodeId other = graph_.link(link).b;
        const bool within =
            is_switch ? graph_.link(link).kind == LinkKind::kNetwork && is_below(other, top)
                      : other == top;
        if (!within) edge.push_back(link);
      }
    }
    return edge;
  }

  bool is_below(NodeId id, NodeId top) const {
    while (id != kNone && id != top) id = graph_.at(id).parent;
    return id == top;
  }

  void explain(std::size_t widest, std::size_t rails, std::size_t pairs) {
    std::vector<std::string>& reasons = rings_.reasons;
    reasons.push_back(
        "machines follow each other in the order of the tree, so that a ring crosses the uplink of "
        "a switch once each way");
    if (widest > 1) {
      reasons.push_back("machines of one NVLink domain stand together, and " +
                        std::to_string(pairs) +
                        " pairs of rings enter and leave it at different ones");
      if (groups_.size() % 2 == 1 && groups_.size() > 1) {
        reasons.push_back("an odd number of domains: each ring changes its place once, at the end");
      }
    }
    if (rails > 1) {
      reasons.push_back(std::to_string(rails) + " rails: the pairs take them in turn");
    }
  }

  const Graph& graph_;
  const RailPaths paths_;
  const SearchOptions& options_;
  std::map<NodeId, int> vertex_;
  std::vector<Group> groups_;
  std::map<LinkId, int> index_;
  ClusterRings rings_;
};

}  // namespace

ClusterRings solve_cluster(const Graph& graph, const std::vector<NodeId>& machines,
                           const SearchOptions& options) {
  return ClusterSearch(graph, machines, options).run();
}

}  // namespace treering::topo
