// Paths: how two devices reach each other, and how fast, alone. Links are shared: who sums the
// bandwidth of several paths must look at their hops.
#pragma once

#include <string>
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

// The best path from one endpoint to another: NVLink where there is a direct one or a switch, else
// over the tree. Requires finish().
Path best_path(const Graph& graph, NodeId from, NodeId to);

// The path over the tree alone (PCIe, sockets, network), whatever other links there are.
Path tree_path(const Graph& graph, NodeId from, NodeId to);

std::string path_label(const Path& path);  // "NV12", "PIX"

}  // namespace treering::topo
