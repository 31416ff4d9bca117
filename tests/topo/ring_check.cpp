#include "tests/topo/ring_check.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <queue>

#include "topo/rail_paths.hpp"

namespace treering::topo {
namespace {

constexpr double kRounding = 1e-5;
constexpr double kPlenty = 1e9;

class MaxFlow {  // Dinic
 public:
  explicit MaxFlow(std::size_t nodes) : out_(nodes) {}

  void add(std::size_t from, std::size_t to, double forward, double backward) {
    out_[from].push_back(edges_.size());
    edges_.push_back({to, forward, forward});
    out_[to].push_back(edges_.size());
    edges_.push_back({from, backward, backward});
  }

  double between(std::size_t from, std::size_t to) {
    for (Edge& edge : edges_) edge.left = edge.capacity;
    double sum = 0;
    while (levels(from, to)) {
      next_.assign(out_.size(), 0);
      for (double more; (more = push(from, to, kPlenty * 10)) > 0;) sum += more;
    }
    return sum;
  }

 private:
  struct Edge {
    std::size_t to;
    double capacity, left;
  };

  bool levels(std::size_t from, std::size_t to) {
    level_.assign(out_.size(), -1);
    level_[from] = 0;
    std::queue<std::size_t> open({from});
    for (; !open.empty(); open.pop()) {
      for (std::size_t id : out_[open.front()]) {
        const Edge& edge = edges_[id];
        if (edge.left <= 1e-9 || level_[edge.to] >= 0) continue;
        level_[edge.to] = level_[open.front()] + 1;
        open.push(edge.to);
      }
    }
    return level_[to] >= 0;
  }

  double push(std::size_t at, std::size_t to, double most) {
    if (at == to) return most;
    for (std::size_t& i = next_[at]; i < out_[at].size(); ++i) {
      const std::size_t id = out_[at][i];
      if (edges_[id].left <= 1e-9 || level_[edges_[id].to] != level_[at] + 1) continue;
      const double pushed = push(edges_[id].to, to, std::min(most, edges_[id].left));
      if (pushed <= 0) continue;
      edges_[id].left -= pushed;
      edges_[id ^ 1].left += pushed;
      return pushed;
    }
    return 0;
  }

  std::vector<std::vector<std::size_t>> out_;
  std::vector<Edge> edges_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

bool is_gpu_link(const Link& link) {
  return link.kind == LinkKind::kNvlink || link.kind == LinkKind::kXgmi;
}

// Where the tree has no link upwards, nothing limits: NUMA nodes without links between them. What
// an NVSwitch hangs at is no way.
bool is_open_upwards(const Graph& graph, NodeId id) {
  if (graph.at(id).parent == kNone || graph.at(id).uplink != kNone) return false;
  if (graph.at(id).kind == NodeKind::kNvSwitch) return false;
  return std::none_of(graph.links.begin(), graph.links.end(), [&](const Link& link) {
    return link.kind == LinkKind::kSocket && (link.a == id || link.b == id);
  });
}

// The same place, if nodes without a link upwards are one with their parent.
NodeId place_of(const Graph& graph, NodeId id) {
  while (graph.at(id).uplink == kNone && graph.at(id).parent != kNone) id = graph.at(id).parent;
  return id;
}

void expect_connected(const Graph& graph, NodeId from, NodeId to, const Path& path) {
  ASSERT_FALSE(path.hops.empty());
  NodeId at = from;
  for (const Hop& hop : path.hops) {
    const Link& link = graph.link(hop.link);
    const NodeId start = hop.a_to_b ? link.a : link.b;
    EXPECT_TRUE(at == start || place_of(graph, at) == place_of(graph, start)) << graph.at(at).name;
    at = hop.a_to_b ? link.b : link.a;
  }
  EXPECT_TRUE(at == to || place_of(graph, at) == place_of(graph, to)) << graph.at(to).name;
}

class Loads {
 public:
  explicit Loads(const Graph& graph) : graph_(graph), paths_(graph) {}

  Path along(NodeId from, NodeId to, std::size_t rail, double gb_s) {
    const Path path = paths_.best(from, to, rail);
    expect_connected(graph_, from, to, path);
    for (const Hop& hop : path.hops) link_[{hop.link, hop.a_to_b}] += gb_s;
    return path;
  }
  void port(NodeId nic, bool out, double gb_s) { port_[{nic, out}] += gb_s; }

  void expect_fit() const {
    for (const auto& [way, gb_s] : link_) {
      const Link& link = graph_.link(way.first);
      const double most = way.second ? link.a_to_b_gb_s : link.b_to_a_gb_s;
      EXPECT_LE(gb_s, most * (1 + kRounding)) << resource_name(graph_, {way.first, kNone});
    }
    for (const auto& [way, gb_s] : port_) {
      EXPECT_LE(gb_s, graph_.at(way.first).port_gbit_s / 8 * (1 + kRounding))
          << graph_.at(way.first).name;
    }
  }

  void expect_full(const Resource& resource) const {
    double most = 0;
    for (const auto& [way, gb_s] : link_) {
      if (way.first == resource.link) most = std::max(most, gb_s);
    }
    for (const auto& [way, gb_s] : port_) {
      if (way.first == resource.port) most = std::max(most, gb_s);
    }
    EXPECT_GE(most, capacity_of(graph_, resource) * (1 - kRounding))
        << resource_name(graph_, resource) << " is said to be full";
  }

 private:
  const Graph& graph_;
  const RailPaths paths_;
  std::map<std::pair<LinkId, bool>, double> link_;
  std::map<std::pair<NodeId, bool>, double> port_;
};

template <class T>
std::vector<T> sorted(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return values;
}

// Costs of tours at the plan's prices; a vertex more for the other machines.
class TourCost {
 public:
  TourCost(const Graph& graph, const RingPlan& plan, bool outside) : n_(plan.members.size()) {
    const Paths paths(graph);
    for (std::size_t i = 0; i < n_; ++i) {
      cost_.emplace_back();
      for (std::size_t j = 0; j < n_; ++j) {
        const Path path = paths.best(plan.members[i], plan.members[j]);
        const bool allowed =
            !path.hops.empty() && (!plan.direct_only || path.path == PathClass::kNvlink);
        cost_[i].push_back(allowed ? price(plan, path, kNone) : kPlenty);
      }
      double leg = kPlenty;
      for (NodeId nic : graph.all(NodeKind::kNic)) {
        if (!outside || !graph.at(nic).usable) continue;
        const Path path = paths.best(plan.members[i], nic);
        if (!path.hops.empty()) leg = std::min(leg, price(plan, path, nic));
      }
      cost_[i].push_back(leg);
    }
    if (outside) {
      cost_.emplace_back();
      for (std::size_t i = 0; i < n_; ++i) cost_[n_].push_back(cost_[i][n_]);
      ++n_;
    }
  }

  double cheapest() {
    seen_.assign(n_, false);
    seen_[0] = true;
    best_ = kPlenty;
    extend(0, 1, 0);
    return best_;
  }

 private:
  static double price(const RingPlan& plan, const Path& path, NodeId nic) {
    double sum = 0;
    for (const Price& it : plan.prices) {
      if (it.resource.port != kNone && it.resource.port == nic) sum += it.per_gb_s / 2;
      for (const Hop& hop : path.hops) {
        if (hop.link == it.resource.link) sum += it.per_gb_s / 2;
      }
    }
    return sum;
  }

  void extend(std::size_t at, std::size_t count, double cost) {
    if (cost >= best_) return;
    if (count == n_) best_ = std::min(best_, cost + cost_[at][0]);
    for (std::size_t next = 1; next < n_; ++next) {
      if (seen_[next]) continue;
      seen_[next] = true;
      extend(next, count + 1, cost + cost_[at][next]);
      seen_[next] = false;
    }
  }

  std::size_t n_;
  std::vector<std::vector<double>> cost_;
  std::vector<bool> seen_;
  double best_ = kPlenty;
};

void expect_a_tree(const Tree& tree, const std::vector<NodeId>& members) {
  EXPECT_EQ(sorted(tree.members), sorted(members));
  ASSERT_EQ(tree.parent.size(), tree.members.size());
  EXPECT_EQ(std::count(tree.parent.begin(), tree.parent.end(), kNone), 1);
  for (std::size_t i = 0; i < tree.parent.size(); ++i) {
    std::size_t steps = 0;
    for (int at = static_cast<int>(i); at != kNone;
         at = tree.parent[static_cast<std::size_t>(at)]) {
      ASSERT_LT(++steps, tree.parent.size() + 1) << "a circle";
    }
  }
}

}  // namespace

double cut_bound(const Graph& graph, const RingPlan& plan, bool outside) {
  MaxFlow flow(graph.nodes.size() + 1);
  const auto at = [](NodeId id) { return static_cast<std::size_t>(id); };
  for (const Link& link : graph.links) {
    const bool between_gpus = is_gpu_link(link);
    // The rest of the machine is left to the way to the NICs.
    if (plan.direct_only && !outside && !between_gpus) continue;
    flow.add(at(link.a), at(link.b), link.a_to_b_gb_s, link.b_to_a_gb_s);
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    if ((!plan.direct_only || outside) && is_open_upwards(graph, id)) {
      flow.add(at(id), at(graph.at(id).parent), kPlenty, kPlenty);
    }
  }
  std::vector<std::size_t> ends;
  for (NodeId member : plan.members) ends.push_back(at(member));
  if (outside) {
    ends.push_back(graph.nodes.size());
    for (NodeId nic : graph.all(NodeKind::kNic)) {
      const double port = graph.at(nic).port_gbit_s / 8;
      if (graph.at(nic).usable) flow.add(at(nic), ends.back(), port, port);
    }
  }
  double least = kPlenty;
  for (std::size_t i = 1; i < ends.size(); ++i) {
    least = std::min({least, flow.between(ends[0], ends[i]), flow.between(ends[i], ends[0])});
  }
  return least;
}

void expect_sound_rings(const Graph& graph, const RingPlan& plan, bool outside) {
  ASSERT_FALSE(plan.rings.empty());
  Loads loads(graph);
  double sum = 0;
  for (const Ring& ring : plan.rings) {
    EXPECT_EQ(sorted(ring.order), sorted(plan.members));
    EXPECT_GT(ring.gb_s, 0);
    sum += ring.gb_s;
    for (std::size_t i = 0; i + 1 < ring.order.size(); ++i) {
      const Path path = loads.along(ring.order[i], ring.order[i + 1], ring.rail, ring.gb_s);
      if (plan.direct_only) {
        EXPECT_EQ(path.path, PathClass::kNvlink);
      }
    }
    EXPECT_EQ(ring.nic_in != kNone, outside);
    if (!outside) {
      loads.along(ring.order.back(), ring.order.front(), ring.rail, ring.gb_s);
      continue;
    }
    loads.along(ring.nic_in, ring.order.front(), 0, ring.gb_s);
    loads.along(ring.order.back(), ring.nic_out, 0, ring.gb_s);
    loads.port(ring.nic_in, false, ring.gb_s);
    loads.port(ring.nic_out, true, ring.gb_s);
  }
  EXPECT_NEAR(sum, plan.gb_s, plan.gb_s * kRounding);
  loads.expect_fit();
  for (const Ring& ring : plan.rings) loads.expect_full(ring.limit);
  if (plan.rings.size() < 2) return;
  for (std::size_t i = 0; i + 1 < plan.rings.size(); i += 2) {
    const Ring &one = plan.rings[i], &two = plan.rings[i + 1];
    std::vector<NodeId> back(two.order.rbegin(), two.order.rend());
    if (!outside) std::rotate(back.begin(), back.end() - 1, back.end());
    EXPECT_EQ(one.order, back);
    EXPECT_EQ(one.nic_in, two.nic_out);
    EXPECT_EQ(one.gb_s, two.gb_s);
  }
}

void expect_proof(const Graph& graph, const RingPlan& plan, bool outside) {
  double sum = 0;
  for (const Price& price : plan.prices) {
    EXPECT_GT(price.per_gb_s, 0);
    sum += price.per_gb_s * capacity_of(graph, price.resource);
  }
  EXPECT_NEAR(sum, plan.bound_gb_s, plan.bound_gb_s * kRounding);
  EXPECT_GE(TourCost(graph, plan, outside).cheapest(), 1 - kRounding);
}

bool direct_ring_exists(const Graph& graph, const std::vector<NodeId>& members, bool chain) {
  const Paths paths(graph);
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), 0);
  const auto direct = [&](std::size_t i, std::size_t j) {
    return paths.best(members[order[i]], members[order[j]]).path == PathClass::kNvlink;
  };
  do {
    bool all = chain || direct(order.size() - 1, 0);
    for (std::size_t i = 0; all && i + 1 < order.size(); ++i) all = direct(i, i + 1);
    if (all) return true;
  } while (std::next_permutation(order.begin() + (chain ? 0 : 1), order.end()));
  return false;
}

void expect_sound_trees(const Graph& graph, const RingPlan& rings, const TreePlan& plan,
                        int machines) {
  ASSERT_FALSE(plan.trees.empty());
  Loads loads(graph);
  double sum = 0;
  for (std::size_t t = 0; t < plan.trees.size(); ++t) {
    const Tree& tree = plan.trees[t];
    expect_a_tree(tree, rings.members);
    EXPECT_GT(tree.gb_s, 0);
    sum += tree.gb_s;
    const std::size_t rail = machines == 1 ? rings.rings[0].rail : 0;
    for (std::size_t i = 0; i < tree.members.size(); ++i) {
      if (tree.parent[i] == kNone) continue;
      const NodeId above = tree.members[static_cast<std::size_t>(tree.parent[i])];
      loads.along(tree.members[i], above, rail, tree.gb_s);
      loads.along(above, tree.members[i], rail, tree.gb_s);
    }
    EXPECT_EQ(tree.rail != kNone, machines > 1);
  }
  EXPECT_NEAR(sum, plan.gb_s, plan.gb_s * kRounding);
  if (machines > 1) {
    // The machine that has most to carry in the trees over machines.
    std::vector<int> edges(static_cast<std::size_t>(machines), 0);
    for (const std::vector<int>& parent : plan.machine_parent) {
      ASSERT_EQ(parent.size(), edges.size());
      for (std::size_t i = 0; i < parent.size(); ++i) {
        if (parent[i] == kNone) continue;
        ++edges[i];
        ++edges[static_cast<std::size_t>(parent[i])];
      }
    }
    const double most = *std::max_element(edges.begin(), edges.end());
    for (std::size_t t = 0; t < plan.trees.size(); t += 2) {
      const Tree& tree = plan.trees[t];
      loads.along(tree.members[0], tree.rail, 0, tree.gb_s * most);
      loads.along(tree.rail, tree.members[0], 0, tree.gb_s * most);
      loads.port(tree.rail, true, tree.gb_s * most);
    }
  }
  loads.expect_fit();
  for (const Tree& tree : plan.trees) loads.expect_full(tree.limit);
}

void expect_same(const RingPlan& a, const RingPlan& b) {
  ASSERT_EQ(a.rings.size(), b.rings.size());
  for (std::size_t i = 0; i < a.rings.size(); ++i) {
    EXPECT_EQ(a.rings[i].order, b.rings[i].order);
    EXPECT_EQ(a.rings[i].gb_s, b.rings[i].gb_s);
    EXPECT_EQ(a.rings[i].why, b.rings[i].why);
  }
  EXPECT_EQ(a.steps, b.steps);
}

}  // namespace treering::topo
