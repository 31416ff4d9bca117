// The search's parts, from the problem to pairs of rings. Public: search.hpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "topo/ring_problem.hpp"

namespace treering::topo {

struct RingSolution {
  std::vector<Circle> circles;  // one a pair
  std::vector<double> gb_s;     // of both rings of a pair together
  std::vector<double> prices;   // of the problem's resources, so that no pair costs less than 1
  double bound_gb_s = 0;        // what all resources cost; 0: not proven
  bool even = false;            // all pairs are equally fast
  bool cut_short = false;       // the steps were used up
  std::int64_t steps = 0;

  double total() const;
};

// Does any circle exist?
bool has_circle(const RingProblem& problem, std::int64_t& steps);
// The best pairs. The problem has a circle.
RingSolution solve_rings(const RingProblem& problem, const SearchOptions& options);

// So many pairs of this bandwidth each, if they can be found within a number of tries, and cross no
// more than that in all; else none. Depth first.
std::vector<Circle> find_equal_circles(const RingProblem& problem, int pairs, double gb_s,
                                       double most_crossing, std::int64_t& steps);

// Of machines whose insides are not described; `routes` holds what the circles point to.
struct ClusterRings {
  RingProblem problem;  // without routes
  std::vector<std::unique_ptr<Route>> routes;
  RingSolution solution;
  bool joined = true;              // false: some neighbours have no path
  std::vector<std::size_t> rails;  // of the circles
  std::vector<std::size_t> group_sizes;
  std::vector<std::string> reasons;
};
ClusterRings solve_cluster(const Graph& graph, const std::vector<NodeId>& machines,
                           const SearchOptions& options);

}  // namespace treering::topo
