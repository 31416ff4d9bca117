// Trees over the orders of the rings: which shape, and how fast all of them can be together.
#include <algorithm>
#include <map>

#include "core/double_tree.hpp"
#include "topo/packing.hpp"
#include "topo/rail_paths.hpp"
#include "topo/search.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

constexpr double kWorthIt = 0.5;  // of the chains' bandwidth: then fewer steps are worth it
constexpr double kLeast = 1e-6;

// Two trees that share the data evenly, and what they load: of a resource, in each direction, this
// part of their bandwidth.
struct Pair {
  Tree trees[2];
  std::map<int, double> loads;
};

class TreeSearch {
 public:
  TreeSearch(const Graph& graph, const RingPlan& rings, const SearchOptions& options)
      : graph_(graph), paths_(graph), rings_(rings), options_(options) {}

  TreePlan run() {
    if (options_.machines > 1) {
      across_machines();
    } else if (!rings_.group_sizes.empty()) {
      across_groups();
    } else {
      within_a_machine();
    }
    return std::move(plan_);
  }

 private:
  // Orders of the rings, one of each pair.
  std::vector<const Ring*> ways() const {
    std::vector<const Ring*> out;
    const std::size_t step = rings_.rings.size() > 1 ? 2 : 1;
    for (std::size_t i = 0; i < rings_.rings.size(); i += step) out.push_back(&rings_.rings[i]);
    return out;
  }

  static Tree chain(std::vector<NodeId> order) {
    Tree tree;
    tree.members = std::move(order);
    for (std::size_t i = 0; i < tree.members.size(); ++i) {
      tree.parent.push_back(static_cast<int>(i) - 1);
    }
    return tree;
  }

  static Tree binary(const std::vector<NodeId>& order, int shift) {
    Tree tree;
    tree.members = order;
    const int n = static_cast<int>(order.size());
    for (int i = 0; i < n; ++i) tree.parent.push_back(double_tree::parent(n, i, shift));
    return tree;
  }

  // Each edge carries half of a pair's data up, and half of it down.
  bool load_edges(Pair& pair, const Tree& tree, std::size_t rail) {
    for (std::size_t i = 0; i < tree.members.size(); ++i) {
      if (tree.parent[i] == kNone) continue;
      const NodeId above = tree.members[static_cast<std::size_t>(tree.parent[i])];
      const Path path = paths_.best(tree.members[i], above, rail);
      if (path.hops.empty()) return false;
      if (rings_.direct_only && path.path != PathClass::kNvlink) return false;
      for (const Hop& hop : path.hops) pair.loads[index_of({hop.link, kNone})] += 0.5;
    }
    return true;
  }

  int index_of(const Resource& resource) {
    const auto [it, added] =
        index_.try_emplace({resource.link, resource.port}, static_cast<int>(resources_.size()));
    if (added) {
      resources_.push_back(resource);
      capacity_.push_back(capacity_of(graph_, resource));
    }
    return it->second;
  }

  void within_a_machine() {
    std::vector<Pair> chains, binaries;
    for (const Ring* way : ways()) {
      std::vector<NodeId> reverse(way->order.rbegin(), way->order.rend());
      add(chains, chain(way->order), chain(std::move(reverse)));
      add(binaries, binary(way->order, 0), binary(way->order, 1));
    }
    const double by_chains = share_out(chains), by_binaries = share_out(binaries);
    const bool binary_wins = by_binaries >= by_chains * kWorthIt;
    keep(binary_wins ? binaries : chains);
    const std::string numbers =
        " (" + format_gb_s(by_binaries) + " GB/s; chains " + format_gb_s(by_chains) + ")";
    if (binary_wins) {
      plan_.reasons.push_back("double binary trees over the rings' orders" + numbers +
                              ": their paths are short");
    } else if (binaries.empty()) {
      plan_.reasons.push_back(
          "chains along the rings: the steps of a binary tree have no direct "
          "links");
    } else {
      plan_.reasons.push_back("chains along the rings: the steps of a binary tree share links" +
                              numbers);
    }
  }

  void add(std::vector<Pair>& pairs, Tree first, Tree second) {
    Pair pair;
    if (!load_edges(pair, first, 0) || !load_edges(pair, second, 0)) return;
    pair.trees[0] = std::move(first);
    pair.trees[1] = std::move(second);
    pairs.push_back(std::move(pair));
  }

  // From each NIC that a ring ends at, a chain along that ring; machines are joined at the NIC.
  void across_machines() {
    for (int shift : {0, 1}) {
      for (int i = 0; i < options_.machines; ++i) {
        plan_.machine_parent[shift].push_back(double_tree::parent(options_.machines, i, shift));
      }
    }
    const double edges = most_edges();
    std::vector<Pair> pairs;
    for (const Ring* way : ways()) {
      std::vector<NodeId> reverse(way->order.rbegin(), way->order.rend());
      add_rail(pairs, chain(way->order), way->nic_in, edges);
      add_rail(pairs, chain(std::move(reverse)), way->nic_out, edges);
    }
    share_out(pairs);
    keep(pairs);
    plan_.reasons.push_back("double binary trees over " + std::to_string(options_.machines) +
                            " machines on each rail, a chain along a ring inside of each");
  }

  // Of the busiest machine, in both trees together.
  double most_edges() const {
    std::vector<int> edges(static_cast<std::size_t>(options_.machines), 0);
    for (const std::vector<int>& parent : plan_.machine_parent) {
      for (std::size_t i = 0; i < parent.size(); ++i) {
        if (parent[i] == kNone) continue;
        ++edges[i];
        ++edges[static_cast<std::size_t>(parent[i])];
      }
    }
    return *std::max_element(edges.begin(), edges.end());
  }

  void add_rail(std::vector<Pair>& pairs, Tree tree, NodeId nic, double edges) {
    const bool known = std::any_of(pairs.begin(), pairs.end(), [&](const Pair& pair) {
      return pair.trees[0].rail == nic && pair.trees[0].members[0] == tree.members[0];
    });
    if (known) return;
    tree.rail = nic;
    Pair pair;
    if (!load_edges(pair, tree, 0) || !load_edges(pair, tree, 0)) return;
    for (const Hop& hop : paths_.best(tree.members[0], nic, 0).hops) {
      pair.loads[index_of({hop.link, kNone})] += edges / 2;
    }
    pair.loads[index_of({kNone, nic})] += edges / 2;
    pair.trees[0] = pair.trees[1] = std::move(tree);
    pairs.push_back(std::move(pair));
  }

  // Heads are the machines at which a ring enters groups, or leaves them; below each a chain.
  void across_groups() {
    std::vector<Pair> pairs;
    for (const Ring* way : ways()) {
      for (const bool enters : {true, false}) {
        Pair pair;
        bool whole = true;
        for (int shift : {0, 1}) {
          pair.trees[shift] = over_groups(*way, enters, shift);
          whole = whole && load_edges(pair, pair.trees[shift], way->rail);
        }
        if (whole) pairs.push_back(std::move(pair));
      }
      if (rings_.group_sizes.size() == rings_.members.size() && paths_.rails() == 1) break;
    }
    share_out(pairs);
    keep(pairs);
    const bool domains = rings_.group_sizes.size() < rings_.members.size();
    plan_.reasons.push_back(
        domains ? "double binary trees over the NVLink domains, chains inside of them; their heads "
                  "are the machines at which rings enter and leave"
                : "double binary trees over the machines in the order of the tree");
  }

  Tree over_groups(const Ring& way, bool enters, int shift) const {
    Tree tree;
    const int groups = static_cast<int>(rings_.group_sizes.size());
    std::vector<int> head;
    for (std::size_t size : rings_.group_sizes) {
      const auto begin = way.order.begin() + static_cast<std::ptrdiff_t>(tree.members.size());
      std::vector<NodeId> group(begin, begin + static_cast<std::ptrdiff_t>(size));
      // Every second group is passed backwards, so its head stands at the other end.
      if ((head.size() % 2 == 1) == enters) std::reverse(group.begin(), group.end());
      head.push_back(static_cast<int>(tree.members.size()));
      tree.members.insert(tree.members.end(), group.begin(), group.end());
    }
    for (int i = 0; i < static_cast<int>(tree.members.size()); ++i) tree.parent.push_back(i - 1);
    for (int group = 0; group < groups; ++group) {
      const int above = double_tree::parent(groups, group, shift);
      tree.parent[static_cast<std::size_t>(head[static_cast<std::size_t>(group)])] =
          above == kNone ? kNone : head[static_cast<std::size_t>(above)];
    }
    return tree;
  }

  // How fast pairs are when all links are shared; those that get nothing are dropped.
  double share_out(std::vector<Pair>& pairs) {
    if (pairs.empty()) return 0;
    Packing packing(capacity_);
    for (const Pair& pair : pairs) {
      std::vector<double> uses(capacity_.size(), 0);
      for (const auto& [resource, load] : pair.loads)
        uses[static_cast<std::size_t>(resource)] = load;
      packing.add_column(1, uses);
    }
    packing.solve();
    const std::vector<double> gb_s = packing.amounts();
    double all = 0;
    for (double it : gb_s) all += it;
    std::vector<Pair> kept;
    std::vector<double> loads(capacity_.size(), 0);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (gb_s[i] <= all * kLeast) continue;
      for (Tree& tree : pairs[i].trees) tree.gb_s = gb_s[i] / 2;
      for (const auto& [resource, load] : pairs[i].loads) {
        loads[static_cast<std::size_t>(resource)] += load * gb_s[i];
      }
      kept.push_back(std::move(pairs[i]));
    }
    pairs = std::move(kept);
    for (Pair& pair : pairs) say_limit(pair, loads);
    return all;
  }

  void say_limit(Pair& pair, const std::vector<double>& loads) const {
    const auto fullness = [&](int i) {
      const auto at = static_cast<std::size_t>(i);
      return loads[at] / capacity_[at];
    };
    int fullest = pair.loads.begin()->first;
    for (const auto& [resource, load] : pair.loads) {
      if (fullness(resource) > fullness(fullest) + kLeast) fullest = resource;
    }
    for (Tree& tree : pair.trees) {
      tree.limit = resources_[static_cast<std::size_t>(fullest)];
      tree.why = "full: " + resource_name(graph_, tree.limit) + ", " +
                 format_gb_s(capacity_of(graph_, tree.limit)) + " GB/s";
    }
  }

  void keep(std::vector<Pair>& pairs) {
    for (Pair& pair : pairs) {
      for (Tree& tree : pair.trees) {
        plan_.gb_s += tree.gb_s;
        plan_.trees.push_back(std::move(tree));
      }
    }
  }

  const Graph& graph_;
  const RailPaths paths_;
  const RingPlan& rings_;
  const SearchOptions& options_;
  std::map<std::pair<LinkId, NodeId>, int> index_;
  std::vector<Resource> resources_;
  std::vector<double> capacity_;
  TreePlan plan_;
};

}  // namespace

TreePlan find_trees(const Graph& graph, const RingPlan& rings, const SearchOptions& options) {
  return TreeSearch(graph, rings, options).run();
}

}  // namespace treering::topo
