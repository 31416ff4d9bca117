// Equally fast pairs of rings, by trying: every resource has so many slots for crossings of a pair.
#include <algorithm>
#include <cmath>

#include "topo/ring_search.hpp"

namespace treering::topo {
namespace {

constexpr std::int64_t kMaxTries = 40'000;

class Trial {
 public:
  Trial(const RingProblem& problem, int pairs, double gb_s, double most_crossing)
      : problem_(problem),
        n_(problem.vertices()),
        start_(problem.has_outside ? n_ - 1 : 0),
        pairs_(pairs),
        most_crossing_(most_crossing),
        seen_(static_cast<std::size_t>(n_), false) {
    for (double capacity : problem.capacity) {
      slots_.push_back(static_cast<int>(std::min(1e6, std::floor(capacity / (gb_s / 2) + 1e-6))));
    }
  }

  std::vector<Circle> run() {
    if (!next_circle()) return {};
    std::reverse(found_.begin(), found_.end());
    return std::move(found_);
  }
  std::int64_t tries() const { return tries_; }

 private:
  bool next_circle() {
    if (static_cast<int>(started_) == pairs_) return true;
    ++started_;
    Circle outer;
    std::swap(outer, circle_);
    std::fill(seen_.begin(), seen_.end(), false);
    circle_.vertices.push_back(start_);
    seen_[static_cast<std::size_t>(start_)] = true;
    if (extend()) return true;
    std::swap(outer, circle_);
    for (std::size_t i = 0; i < seen_.size(); ++i) seen_[i] = true;  // the outer one was complete
    --started_;
    return false;
  }

  struct Step {
    int to;
    const Route* route;
  };

  // Near ones first, then those in order.
  std::vector<Step> steps() const {
    std::vector<Step> out;
    const bool last = static_cast<int>(circle_.vertices.size()) == n_;
    for (int to = 0; to < n_; ++to) {
      if (last ? to != start_ : seen_[static_cast<std::size_t>(to)]) continue;
      for (const Route& route : problem_.between(circle_.vertices.back(), to)) {
        if (fits(route)) out.push_back({to, &route});
      }
    }
    std::stable_sort(out.begin(), out.end(), [](const Step& a, const Step& b) {
      return crossing_cost(a.route->path) < crossing_cost(b.route->path);
    });
    return out;
  }

  bool fits(const Route& route) const {
    if (crossing_ + crossing_cost(route.path) > most_crossing_) return false;
    return std::all_of(route.resources.begin(), route.resources.end(),
                       [&](int i) { return slots_[static_cast<std::size_t>(i)] > 0; });
  }

  void take(const Route& route, int sign) {
    for (int resource : route.resources) slots_[static_cast<std::size_t>(resource)] -= sign;
    crossing_ += sign * crossing_cost(route.path);
  }

  bool extend() {
    for (const Step& step : steps()) {
      if (++tries_ > kMaxTries) return false;
      take(*step.route, 1);
      circle_.routes.push_back(step.route);
      if (static_cast<int>(circle_.vertices.size()) == n_) {
        const Circle complete = circle_;
        if (next_circle()) {
          found_.push_back(complete);
          return true;
        }
      } else {
        circle_.vertices.push_back(step.to);
        seen_[static_cast<std::size_t>(step.to)] = true;
        if (extend()) return true;
        seen_[static_cast<std::size_t>(step.to)] = false;
        circle_.vertices.pop_back();
      }
      circle_.routes.pop_back();
      take(*step.route, -1);
    }
    return false;
  }

  const RingProblem& problem_;
  int n_;
  int start_;  // the other machines, if there are any: where a ring ends matters most
  int pairs_;
  double most_crossing_;
  std::vector<bool> seen_;
  std::vector<int> slots_;
  Circle circle_;              // the one that grows
  std::vector<Circle> found_;  // last one first
  int started_ = 0;
  double crossing_ = 0;
  std::int64_t tries_ = 0;
};

}  // namespace

std::vector<Circle> find_equal_circles(const RingProblem& problem, int pairs, double gb_s,
                                       double most_crossing, std::int64_t& steps) {
  Trial trial(problem, pairs, gb_s, most_crossing);
  std::vector<Circle> found = trial.run();
  steps += trial.tries() * problem.vertices();
  return found;
}

}  // namespace treering::topo
