// Paths: how two devices reach each other, and how fast, alone. Links are shared: who sums the
// bandwidth of several paths must look at their hops.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "topo/graph.hpp"

namespace treering::topo {

struct Hop {
  LinkId link = kNone;
  bool a_to_b = true;  // the direction in which it is crossed
};

struct Path {
  PathClass path = PathClass::kNoPath;
  int nvlinks = 0;                   // kNvlink: number of links; 0 in other classes
  double gb_s = 0;                   // of the narrowest hop; 0 if there is no path
  Source source = Source::kUnknown;  // of that number, the least certain of the hops
  std::vector<Hop> hops;
};

// Finds paths of one graph, which must outlive it and not change. It indexes links by their ends,
// so that a path costs its length, however large the graph. Requires finish().
class Paths {
 public:
  explicit Paths(const Graph& graph);

  // The best path from one endpoint to another: NVLink where there is a direct one or a switch,
  // else over the tree.
  Path best(NodeId from, NodeId to) const;
  // The path over the tree alone (PCIe, sockets, network), whatever other links there are.
  Path tree(NodeId from, NodeId to) const;
  // The NVSwitch that a node has NVLinks to; kNone if none, the first if several.
  NodeId nvswitch_of(NodeId id) const;

 private:
  LinkId find(NodeId a, NodeId b, LinkKind kind) const;
  Path direct(NodeId from, NodeId to) const;
  // Over NUMA nodes: the link between them, where both sides have one.
  void cross_sockets(Path& path, NodeId from_numa, NodeId to_numa) const;

  const Graph& graph_;
  std::unordered_map<std::uint64_t, LinkId> links_;  // by both ends and kind; the first of several
  std::unordered_map<NodeId, std::vector<NodeId>> nvswitches_;  // by what is linked to them
  std::unordered_map<std::uint64_t, PathClass> stated_;         // by both ends; the last of several
};

// Of one pair; who asks for many keeps a Paths.
inline Path best_path(const Graph& graph, NodeId from, NodeId to) {
  return Paths(graph).best(from, to);
}
inline Path tree_path(const Graph& graph, NodeId from, NodeId to) {
  return Paths(graph).tree(from, to);
}

std::string path_label(const Path& path);  // "NV12", "PIX"

}  // namespace treering::topo
