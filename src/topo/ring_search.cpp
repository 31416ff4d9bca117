#include "topo/ring_search.hpp"

#include <algorithm>
#include <numeric>

#include "topo/cheapest_tour.hpp"
#include "topo/packing.hpp"

namespace treering::topo {
namespace {

// Decides among equals, and costs no bandwidth that counts.
constexpr double kCrossingWeight = 1e-5;
constexpr double kEnough = 1e-7;  // a tour that is cheaper by less is not better
constexpr int kMaxColumns = 400;
constexpr int kMaxEqualPairs = 12;
constexpr double kLeastShare = 0.02;  // slower pairs than that part of all are not worth a ring
constexpr double kMostLoss = 0.03;    // what leaving such pairs out may cost

class ColumnSearch {
 public:
  ColumnSearch(const RingProblem& problem, const SearchOptions& options)
      : problem_(problem), options_(options), packing_(problem.capacity) {}

  RingSolution run() {
    bool proven = false;
    const auto goes_on = [&] { return circles_.size() < kMaxColumns && !used_up(); };
    while (!proven && (circles_.empty() || goes_on())) proven = !add_better();
    solution_.circles = circles_;
    solution_.gb_s = packing_.amounts();
    solution_.cut_short = !proven || problem_.vertices() > kMaxExact;
    prove();
    even_out();
    if (!solution_.even) thin_out();
    solution_.steps += packing_.steps();
    return std::move(solution_);
  }

 private:
  bool used_up() const { return solution_.steps + packing_.steps() > options_.max_steps; }

  // The cheapest route of each pair of vertices at these prices.
  TourCosts costs_at(const std::vector<double>& prices, double weight) {
    TourCosts costs;
    costs.n = problem_.vertices();
    for (const std::vector<Route>& routes : problem_.routes) {
      double least = kNoEdge;
      for (const Route& route : routes) least = std::min(least, cost_of(route, prices, weight));
      costs.cost.push_back(least);
    }
    solution_.steps += static_cast<std::int64_t>(costs.cost.size());
    return costs;
  }

  static double cost_of(const Route& route, const std::vector<double>& prices, double weight) {
    double cost = weight * crossing_cost(route.path);
    for (int i : route.resources) cost += prices[static_cast<std::size_t>(i)] / 2;
    return cost;
  }

  Circle circle_of(const Tour& tour, const std::vector<double>& prices) const {
    Circle circle;
    circle.vertices = tour.order;
    for (std::size_t i = 0; i < tour.order.size(); ++i) {
      const int a = tour.order[i], b = tour.order[(i + 1) % tour.order.size()];
      const std::vector<Route>& routes = problem_.between(a, b);
      circle.routes.push_back(
          &*std::min_element(routes.begin(), routes.end(), [&](const Route& one, const Route& two) {
            return cost_of(one, prices, kCrossingWeight) < cost_of(two, prices, kCrossingWeight);
          }));
    }
    return circle;
  }

  // A circle that costs less than it is worth, if there is one. The quick way first: only when it
  // finds none is the exact one worth its steps.
  bool add_better() {
    const std::vector<double> prices = packing_.prices();
    const TourCosts costs = costs_at(prices, kCrossingWeight);
    Tour tour = quick_tour(costs, kQuickStarts, solution_.steps);
    const auto better = [&] { return tour.exists() && tour.cost < 1 - kEnough; };
    if (!better() && costs.n <= kMaxExact) tour = exact_tour(costs, solution_.steps);
    if (!better()) return false;
    circles_.push_back(circle_of(tour, prices));
    add_to(packing_, circles_.back());
    packing_.solve();
    return true;
  }

  void add_to(Packing& packing, const Circle& circle) const {
    std::vector<double> uses;
    for (int count : circle.crossings(problem_.resources.size())) uses.push_back(count / 2.0);
    packing.add_column(1 - kCrossingWeight * circle.crossing(), uses);
  }

  // The cheapest tour at the last prices, without what crossings cost, says what they prove.
  void prove() {
    solution_.prices = packing_.prices();
    const TourCosts costs = costs_at(solution_.prices, 0);
    if (costs.n > kMaxExact || used_up()) return;
    const Tour tour = exact_tour(costs, solution_.steps);
    if (!tour.exists() || tour.cost <= 0) return;
    for (std::size_t i = 0; i < solution_.prices.size(); ++i) {
      solution_.prices[i] /= tour.cost;
      solution_.bound_gb_s += solution_.prices[i] * problem_.capacity[i];
    }
  }

  // Keeps the fastest so many pairs, at what they then reach together.
  RingSolution best_of(std::size_t pairs) const {
    std::vector<std::size_t> by_speed(solution_.circles.size());
    std::iota(by_speed.begin(), by_speed.end(), 0);
    std::stable_sort(by_speed.begin(), by_speed.end(), [&](std::size_t a, std::size_t b) {
      return solution_.gb_s[a] > solution_.gb_s[b] + kEnough;
    });
    RingSolution kept;
    Packing packing(problem_.capacity);
    for (std::size_t i = 0; i < pairs; ++i) {
      kept.circles.push_back(solution_.circles[by_speed[i]]);
      add_to(packing, kept.circles.back());
    }
    packing.solve();
    kept.gb_s = packing.amounts();
    kept.steps = packing.steps();
    return kept;
  }

  void keep(RingSolution kept) {
    solution_.circles = std::move(kept.circles);
    solution_.gb_s = std::move(kept.gb_s);
  }

  void keep_best(std::size_t pairs) {
    RingSolution kept = best_of(pairs);
    solution_.steps += kept.steps;
    keep(std::move(kept));
  }

  void thin_out() {
    const double all = solution_.total();
    const auto in_use = [&] {
      return static_cast<std::size_t>(
          std::count_if(solution_.gb_s.begin(), solution_.gb_s.end(),
                        [&](double gb_s) { return gb_s > all * kEnough; }));
    };
    keep_best(std::min(in_use(), static_cast<std::size_t>(options_.max_pairs)));
    while (solution_.circles.size() > 1 && !used_up()) {
      const double least = *std::min_element(solution_.gb_s.begin(), solution_.gb_s.end());
      if (least >= all * kLeastShare) return;
      RingSolution fewer = best_of(solution_.circles.size() - 1);
      solution_.steps += fewer.steps;
      if (fewer.total() < all * (1 - kMostLoss)) return;
      keep(std::move(fewer));
    }
  }

  // The fewest pairs of one speed that reach as much and cross no more, if there are any.
  void even_out() {
    const double all = solution_.total();
    double crossing = 0;
    for (std::size_t i = 0; i < solution_.circles.size(); ++i) {
      crossing += solution_.circles[i].crossing() * solution_.gb_s[i] / all;
    }
    for (int pairs = 1; pairs <= std::min(kMaxEqualPairs, options_.max_pairs); ++pairs) {
      if (used_up()) return;
      std::vector<Circle> circles = find_equal_circles(problem_, pairs, all / pairs,
                                                       crossing * pairs + kEnough, solution_.steps);
      if (circles.empty()) continue;
      solution_.gb_s.assign(circles.size(), all / pairs);
      solution_.circles = std::move(circles);
      solution_.even = true;
      return;
    }
  }

  static constexpr int kQuickStarts = 8;
  const RingProblem& problem_;
  const SearchOptions& options_;
  Packing packing_;
  std::vector<Circle> circles_;
  RingSolution solution_;
};

}  // namespace

double RingSolution::total() const { return std::accumulate(gb_s.begin(), gb_s.end(), 0.0); }

bool has_circle(const RingProblem& problem, std::int64_t& steps) {
  TourCosts costs;
  costs.n = problem.vertices();
  for (const std::vector<Route>& routes : problem.routes) {
    costs.cost.push_back(routes.empty() ? kNoEdge : 0);
  }
  if (quick_tour(costs, costs.n, steps).exists()) return true;
  return costs.n <= kMaxExact && exact_tour(costs, steps).exists();
}

RingSolution solve_rings(const RingProblem& problem, const SearchOptions& options) {
  return ColumnSearch(problem, options).run();
}

}  // namespace treering::topo
