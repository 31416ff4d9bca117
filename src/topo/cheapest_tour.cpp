#include "topo/cheapest_tour.hpp"

#include <algorithm>
#include <bit>

namespace treering::topo {
namespace {

double cost_of(const TourCosts& costs, const std::vector<int>& order) {
  double sum = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    sum += costs.at(order[i], order[(i + 1) % order.size()]);
  }
  return sum;
}

std::vector<int> nearest_first(const TourCosts& costs, int start) {
  std::vector<int> order = {start};
  std::vector<bool> seen(static_cast<std::size_t>(costs.n), false);
  seen[static_cast<std::size_t>(start)] = true;
  while (static_cast<int>(order.size()) < costs.n) {
    int nearest = -1;
    for (int next = 0; next < costs.n; ++next) {
      if (seen[static_cast<std::size_t>(next)]) continue;
      if (nearest < 0 || costs.at(order.back(), next) < costs.at(order.back(), nearest)) {
        nearest = next;
      }
    }
    seen[static_cast<std::size_t>(nearest)] = true;
    order.push_back(nearest);
  }
  return order;
}

// Replaces two edges by the two that turn the part between them round.
bool turn_a_part(const TourCosts& costs, std::vector<int>& order) {
  constexpr double kEnough = 1e-12;
  const std::size_t n = order.size();
  for (std::size_t i = 0; i + 2 < n; ++i) {
    for (std::size_t j = i + 2; j < n; ++j) {
      const int a = order[i], b = order[i + 1], c = order[j], d = order[(j + 1) % n];
      if (d == a) continue;
      const double gain = costs.at(a, b) + costs.at(c, d) - costs.at(a, c) - costs.at(b, d);
      if (gain <= kEnough) continue;
      std::reverse(order.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                   order.begin() + static_cast<std::ptrdiff_t>(j) + 1);
      return true;
    }
  }
  return false;
}

Tour finished(const TourCosts& costs, std::vector<int> order) {
  std::rotate(order.begin(), std::find(order.begin(), order.end(), 0), order.end());
  Tour tour;
  tour.cost = cost_of(costs, order);
  tour.order = std::move(order);
  return tour;
}

}  // namespace

Tour exact_tour(const TourCosts& costs, std::int64_t& steps) {
  const int n = costs.n;
  if (n <= 2) {
    Tour tour;
    for (int i = 0; i < n; ++i) tour.order.push_back(i);
    tour.cost = cost_of(costs, tour.order);
    return tour;
  }
  // Vertex 0 is the start; bit i of a set is vertex i+1. best[set][i]: from the start through all
  // of the set, i last.
  const int others = n - 1;
  const auto width = static_cast<std::size_t>(others);
  const std::uint32_t all = (1u << others) - 1;
  std::vector<double> best((std::size_t{all} + 1) * width, 2 * kNoEdge);
  const auto row = [&](std::uint32_t set) { return best.data() + std::size_t{set} * width; };
  for (int i = 0; i < others; ++i) row(1u << i)[i] = costs.at(0, i + 1);
  for (std::uint32_t set = 1; set <= all; ++set) {
    const double* from = row(set);
    for (std::uint32_t rest = all & ~set; rest != 0; rest &= rest - 1) {
      const int next = std::countr_zero(rest);
      double least = 2 * kNoEdge;
      for (std::uint32_t in = set; in != 0; in &= in - 1) {
        const int last = std::countr_zero(in);
        least = std::min(least, from[last] + costs.at(last + 1, next + 1));
      }
      row(set | 1u << next)[next] = least;
      steps += std::popcount(set);
    }
  }
  Tour tour;
  // Backwards from the end: who was last is found again by what it cost.
  std::uint32_t set = all;
  int after = 0;
  while (set != 0) {
    int last = -1;
    for (std::uint32_t in = set; in != 0; in &= in - 1) {
      const int i = std::countr_zero(in);
      const auto through = [&](int j) { return row(set)[j] + costs.at(j + 1, after); };
      if (last < 0 || through(i) < through(last)) last = i;
    }
    tour.order.push_back(last + 1);
    after = last + 1;
    set &= ~(1u << last);
  }
  tour.order.push_back(0);
  std::reverse(tour.order.begin(), tour.order.end());
  tour.cost = cost_of(costs, tour.order);
  return tour;
}

Tour quick_tour(const TourCosts& costs, int starts, std::int64_t& steps) {
  Tour best;
  if (costs.n <= 2) return exact_tour(costs, steps);
  for (int start = 0; start < std::min(starts, costs.n); ++start) {
    std::vector<int> order = nearest_first(costs, start);
    for (int turns = 0; turns < 20 * costs.n && turn_a_part(costs, order); ++turns) {
      steps += costs.n;
    }
    steps += std::int64_t{2} * costs.n * costs.n;
    Tour tour = finished(costs, std::move(order));
    if (best.order.empty() || tour.cost < best.cost - 1e-12) best = std::move(tour);
  }
  return best;
}

}  // namespace treering::topo
