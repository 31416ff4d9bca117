// The search for rings as a problem of numbers: vertices, what routes between them load, and how
// much there is of it. Nothing of it is public; search.hpp is.
#pragma once

#include <cstdint>
#include <vector>

#include "topo/paths.hpp"
#include "topo/search.hpp"

namespace treering::topo {

// Between two vertices, both ways at once: rings come in pairs.
struct Route {
  std::vector<int> resources;  // indices; each is loaded once in each direction
  PathClass path = PathClass::kNoPath;
  NodeId nic = kNone;  // of a route to the other machines
};

// Vertices are the members, and one more for the other machines, if there are any: the last.
struct RingProblem {
  std::vector<NodeId> members;
  bool has_outside = false;
  bool direct_only = false;
  std::vector<Resource> resources;
  std::vector<double> capacity;            // GB/s
  std::vector<std::vector<Route>> routes;  // vertex x vertex, symmetric; empty: none

  int vertices() const { return static_cast<int>(members.size()) + (has_outside ? 1 : 0); }
  const std::vector<Route>& between(int a, int b) const {
    return routes[static_cast<std::size_t>(a) * static_cast<std::size_t>(vertices()) +
                  static_cast<std::size_t>(b)];
  }
};

// direct_only: no routes between members but NVLink and xGMI.
RingProblem make_ring_problem(const Graph& graph, const std::vector<NodeId>& members,
                              bool has_outside, bool direct_only);

// A pair of rings: the vertices in order, and which route is taken to the next one.
struct Circle {
  std::vector<int> vertices;
  std::vector<const Route*> routes;

  int crossing() const;
  // How often each resource is crossed by the pair's rings, both added: a pair of bandwidth 1 loads
  // a direction of it by half of that.
  std::vector<int> crossings(std::size_t resources) const;
};

// What a resource carries when pairs are as fast as that.
std::vector<double> loads_of(const RingProblem& problem, const std::vector<Circle>& circles,
                             const std::vector<double>& gb_s);

}  // namespace treering::topo
