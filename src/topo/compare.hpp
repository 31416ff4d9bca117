// Two descriptions of one machine: a file and what is found, a matrix and a tree.
#pragma once

#include "topo/graph.hpp"

namespace treering::topo {

// Adds a contradiction to `graph` for each kind of thing in which `other` says something else of
// the same GPUs: how many there are, how pairs are joined, which CPUs are near.
void compare(Graph& graph, const Graph& other);

}  // namespace treering::topo
