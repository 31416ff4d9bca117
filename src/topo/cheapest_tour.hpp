// The cheapest way round all vertices, by the costs between them: the travelling salesman.
#pragma once

#include <cstdint>
#include <vector>

namespace treering::topo {

struct TourCosts {
  int n = 0;
  std::vector<double> cost;  // n x n, symmetric; kNoEdge: there is none

  double at(int a, int b) const {
    return cost[static_cast<std::size_t>(a) * static_cast<std::size_t>(n) +
                static_cast<std::size_t>(b)];
  }
};
inline constexpr double kNoEdge = 1e9;

struct Tour {
  std::vector<int> order;  // starts with vertex 0
  double cost = 0;         // kNoEdge and more: there is none

  bool exists() const { return !order.empty() && cost < kNoEdge; }
};

// Held and Karp's dynamic program: exact; 2^(n-1) n^2 / 2 steps, n at most kMaxExact.
Tour exact_tour(const TourCosts& costs, std::int64_t& steps);

// The nearest vertex first, then parts turned round as long as that helps (2-opt). From each start,
// or from so many; the best of them.
Tour quick_tour(const TourCosts& costs, int starts, std::int64_t& steps);

}  // namespace treering::topo
