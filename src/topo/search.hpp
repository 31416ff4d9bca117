// Search for rings and trees: in which order data should go round, over which links, how much.
//
// Model. Members are the GPUs of a machine, or the machines of a cluster whose insides are not
// described. Two neighbours use the best path between them (paths.hpp), and a link is one shared
// resource per direction: whatever crosses it in that direction adds up. So does a NIC's port.
//
// Rings. A ring visits every member once. Rings come in pairs, the same order in both directions,
// for links are as fast both ways (where one is not, the slower direction counts); a pair of two
// members is one ring. Each ring takes a share of the data in proportion to its bandwidth.
//   Objective: the largest sum of bandwidths that fits into all links at once. Among equals, the
//   rings that cross the fewest switches, host bridges and sockets (kCrossing); then the fewest.
//   Where NVLink or xGMI alone can close a ring, rings use nothing else: PCIe is left to NICs and
//   hosts. Where it cannot (islands, a missing link), the rest is bridged over the tree.
//   Method: a linear program over rings whose columns are found as they are needed, by the
//   cheapest tour at the links' current prices. No better tour at the last prices is the proof that
//   no set of rings carries more (`bound_gb_s`). Tours are exact for up to kMaxExact members.
//
// Several machines (SearchOptions::machines, or a cluster). A ring runs through each machine as a
// chain from the NIC of one rail to that of another. Every second machine runs its chains
// backwards, so that a message leaves and arrives on the same rail. If the number of machines is
// odd, each ring changes its rail once, at the end.
//
// Trees. An all-reduce goes up a tree and down again; a tree's bandwidth is the vector's bytes a
// second. Within a machine a tree is double binary (core/double_tree.hpp) over the order of a
// ring, or that ring's chain where the binary tree's longer steps would carry less than half of it.
// Across machines, or NVLink domains of a cluster, trees are double binary, two for each rail, with
// chains inside.
//
// Deterministic: the same graph and options give the same plan, on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "topo/graph.hpp"

namespace treering::topo {

struct SearchOptions {
  int machines = 1;    // so many like this one, joined by their NICs
  int max_pairs = 16;  // of rings
  // Elementary steps (a comparison, an addition) after which the best plan so far is returned.
  // The default is less than a second.
  std::int64_t max_steps = 600'000'000;
};

// The most members for which tours are exact: 2^kMaxExact of them are looked at.
inline constexpr int kMaxExact = 17;

// What can be full: a link, in its busier direction, or a NIC's port to the network.
struct Resource {
  LinkId link = kNone;
  NodeId port = kNone;

  bool operator==(const Resource&) const = default;
};
double capacity_of(const Graph& graph, const Resource& resource);  // GB/s, of the slower direction
std::string resource_name(const Graph& graph, const Resource& resource);  // "GPU0 - GPU3, NVLink"

// What a path costs when bandwidth does not decide: how far its ends are apart.
int crossing_cost(PathClass path);

struct Ring {
  std::vector<NodeId> order;  // from each to the next, and from the last to the first
  NodeId nic_in = kNone;      // several machines: data comes to order.front() by this NIC,
  NodeId nic_out = kNone;     // and leaves order.back() by that one
  std::size_t rail = 0;       // of a cluster: which of a machine's links to the network
  double gb_s = 0;
  Resource limit;   // is full, and keeps this ring from being faster
  std::string why;  // "8 NV; full: GPU0 - GPU3, NVLink x1, 18 GB/s"
};

// A proof that no rings carry more: each pair of rings costs at least 1 at these prices, and all
// links together cost the bound.
struct Price {
  Resource resource;
  double per_gb_s = 0;
};

struct RingPlan {
  std::vector<NodeId> members;
  bool direct_only = false;  // uses NVLink and xGMI alone between GPUs
  std::vector<Ring> rings;   // pairs stand together, the reverse second
  double gb_s = 0;           // of all rings together
  double bound_gb_s = 0;     // no more is possible; 0: not proven
  std::vector<Price> prices;
  // Of a cluster: how many machines of one NVLink domain stand together, along each ring.
  std::vector<std::size_t> group_sizes;
  std::vector<std::string> reasons;  // sentences
  std::int64_t steps = 0;            // that it took
};

// Refuses graphs with fewer than two members, and several machines without NICs.
Result<RingPlan> find_rings(const Graph& graph, const SearchOptions& options);

struct Tree {
  std::vector<NodeId> members;
  std::vector<int> parent;  // of each, as an index into members; kNone: the root
  NodeId rail = kNone;      // several machines: the root's NIC, by which their trees are joined
  double gb_s = 0;
  Resource limit;
  std::string why;
};

struct TreePlan {
  std::vector<Tree> trees;  // pairs stand together
  // Several machines: in both trees over machines, whom each machine is below; kNone: it is the
  // root. Tree t of `trees` is joined by tree t % 2 of these.
  std::vector<int> machine_parent[2];
  double gb_s = 0;
  std::vector<std::string> reasons;
};

// Over the orders that the rings found, with the same options.
TreePlan find_trees(const Graph& graph, const RingPlan& rings, const SearchOptions& options);

}  // namespace treering::topo
