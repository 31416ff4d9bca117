// The parts of the search that are mathematics, against brute force and against proofs.
#include "topo/packing.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "topo/cheapest_tour.hpp"

namespace treering::topo {
namespace {

// By hand: maximise 3x + 2y with x + y <= 4, x + 3y <= 6, x <= 3.
TEST(Packing, ByHand) {
  Packing packing({4, 6, 3});
  packing.add_column(3, {1, 1, 1});
  packing.solve();
  EXPECT_DOUBLE_EQ(packing.amounts()[0], 3);
  packing.add_column(2, {1, 3, 0});
  packing.solve();
  EXPECT_DOUBLE_EQ(packing.amounts()[0], 3);
  EXPECT_DOUBLE_EQ(packing.amounts()[1], 1);
  const std::vector<double> prices = packing.prices();
  EXPECT_DOUBLE_EQ(prices[0], 2);
  EXPECT_DOUBLE_EQ(prices[1], 0);
  EXPECT_DOUBLE_EQ(prices[2], 1);
}

// What fits, prices that cover, and both worth the same: that is optimal, whatever found it.
TEST(Packing, RandomOnesAreOptimal) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto upto = [&](int n) {
      return static_cast<double>(random() % static_cast<std::uint64_t>(n));
    };
    const std::size_t rows = 1 + random() % 12, columns = 1 + random() % 20;
    std::vector<double> capacity;
    for (std::size_t i = 0; i < rows; ++i) capacity.push_back(upto(4) * 6);  // also nothing
    Packing packing(capacity);
    std::vector<std::vector<double>> uses(columns);
    std::vector<double> value;
    for (std::size_t j = 0; j < columns; ++j) {
      for (std::size_t i = 0; i < rows; ++i) uses[j].push_back(upto(3) / 2);
      uses[j][random() % rows] = 1;
      value.push_back(1 + upto(3));
      packing.add_column(value[j], uses[j]);
      if (random() % 2 == 0) packing.solve();
    }
    packing.solve();
    const std::vector<double> amounts = packing.amounts(), prices = packing.prices();
    double worth = 0, cost = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      double used = 0;
      for (std::size_t j = 0; j < columns; ++j) used += amounts[j] * uses[j][i];
      EXPECT_LE(used, capacity[i] + 1e-7);
      EXPECT_GE(prices[i], 0);
      cost += prices[i] * capacity[i];
    }
    for (std::size_t j = 0; j < columns; ++j) {
      EXPECT_GE(amounts[j], 0);
      worth += amounts[j] * value[j];
      EXPECT_GE(std::inner_product(prices.begin(), prices.end(), uses[j].begin(), 0.0),
                value[j] - 1e-7);
    }
    EXPECT_NEAR(worth, cost, 1e-6);
  }
}

double brute_force(const TourCosts& costs) {
  std::vector<int> order(static_cast<std::size_t>(costs.n));
  std::iota(order.begin(), order.end(), 0);
  double best = 2 * kNoEdge * costs.n;
  do {
    double sum = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      sum += costs.at(order[i], order[(i + 1) % order.size()]);
    }
    best = std::min(best, sum);
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return best;
}

TEST(CheapestTour, IsTheCheapestOfAllOrders) {
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    TourCosts costs;
    costs.n = 2 + static_cast<int>(seed % 7);
    const auto n = static_cast<std::size_t>(costs.n);
    costs.cost.assign(n * n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i + 1; j < n; ++j) {
        const bool none = random() % 4 == 0;
        costs.cost[i * n + j] = costs.cost[j * n + i] =
            none ? kNoEdge : static_cast<double>(random() % 100);
      }
    }
    std::int64_t steps = 0;
    const Tour exact = exact_tour(costs, steps), quick = quick_tour(costs, costs.n, steps);
    const double best = brute_force(costs);
    EXPECT_EQ(exact.exists(), best < kNoEdge);
    if (exact.exists()) {
      EXPECT_DOUBLE_EQ(exact.cost, best);
    }
    EXPECT_GE(quick.cost, exact.exists() ? best : kNoEdge);
    for (const Tour& tour : {exact, quick}) {
      ASSERT_EQ(tour.order.size(), n);
      EXPECT_EQ(tour.order[0], 0);
      std::vector<int> order = tour.order;
      std::sort(order.begin(), order.end());
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(order[i], static_cast<int>(i));
    }
    EXPECT_LE(steps, 100'000);
  }
}

}  // namespace
}  // namespace treering::topo
