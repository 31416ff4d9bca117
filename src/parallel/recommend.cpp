// The fastest layout that fits, and why.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "treering/parallel/plan.hpp"

#include "parallel/try.hpp"

namespace tr::par {
namespace {

std::string gigabytes(double bytes) {
  char text[48];
  std::snprintf(text, sizeof text, "%.3g GB", bytes / 1e9);
  return text;
}

// The simpler of two layouts: fewer ways of splitting, and each less.
bool is_simpler(const LayoutChoice& a, const LayoutChoice& b) {
  const auto rank = [](const LayoutChoice& layout) {
    return std::array<std::int64_t, 5>{layout.recompute == Recompute::kFull, layout.zero, layout.tp,
                                       layout.pp, -layout.micro_batch};
  };
  return rank(a) < rank(b);
}

bool is_better(const Plan& a, const Plan& b) {
  // Plans that are equally fast, as far as such a prediction can tell.
  constexpr double kSame = 1.01;
  if (a.step_s() * kSame < b.step_s()) return true;
  return a.step_s() < b.step_s() * kSame && is_simpler(a.layout, b.layout);
}

struct Search {
  std::optional<Plan> best;      // of those that fit
  std::optional<Plan> smallest;  // of all
  // The best without one kind of splitting; none: nothing fits without.
  std::optional<Plan> without_tp, without_pp, without_zero;
  std::optional<Plan> dp_alone;  // whether it fits or not

  void consider(const Plan& plan) {
    const auto keep_smaller = [&](std::optional<Plan>& kept) {
      if (!kept || plan.memory.total() < kept->memory.total()) kept = plan;
    };
    keep_smaller(smallest);
    const LayoutChoice& layout = plan.layout;
    if (layout.tp == 1 && layout.pp == 1 && layout.zero == 0) keep_smaller(dp_alone);
    if (!plan.fits) return;
    const auto keep_better = [&](std::optional<Plan>& kept) {
      if (!kept || is_better(plan, *kept)) kept = plan;
    };
    keep_better(best);
    if (layout.tp == 1) keep_better(without_tp);
    if (layout.pp == 1) keep_better(without_pp);
    if (layout.zero == 0) keep_better(without_zero);
  }
};

// Every divisor triple of the ranks; tensor parallelism inside a node only, where links are fast.
Search search(const Workload& workload, const Cluster& cluster) {
  Search found;
  const auto consider = [&](const LayoutChoice& layout) {
    if (const Result<Plan> plan = make_plan(workload, cluster, layout); plan) {
      found.consider(plan.value());
    }
  };
  for (int tp = 1; tp <= std::min(cluster.ranks, cluster.ranks_per_node); ++tp) {
    if (cluster.ranks % tp != 0) continue;
    for (int pp = 1; pp <= std::min(cluster.ranks / tp, workload.model.layers); ++pp) {
      if (cluster.ranks / tp % pp != 0) continue;
      LayoutChoice layout;
      layout.tp = tp;
      layout.pp = pp;
      layout.dp = cluster.ranks / tp / pp;
      layout.is_sequence_parallel = tp > 1 && workload.model.is_transformer;
      const std::int64_t most = workload.batch / layout.dp;
      for (layout.micro_batch = 1; layout.micro_batch <= most; layout.micro_batch *= 2) {
        for (layout.zero = 0; layout.zero <= (layout.dp > 1 ? 3 : 0); ++layout.zero) {
          for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
            layout.recompute = recompute;
            consider(layout);
          }
        }
      }
    }
  }
  return found;
}

// What one kind of splitting is for: without it nothing fits, or the best is slower.
std::string reason_for(const std::string& what, const Plan& best,
                       const std::optional<Plan>& without) {
  if (!without) return what + ": without it nothing fits";
  char text[64];
  std::snprintf(text, sizeof text, ": a step takes %.3g ms, without it %.3g", best.step_s() * 1e3,
                without->step_s() * 1e3);
  return what + text + " (" + to_string(without->layout) + ")";
}

std::vector<std::string> reasons_for(const Workload& workload, const Cluster& cluster,
                                     const Search& found) {
  const Plan& best = *found.best;
  const LayoutChoice& layout = best.layout;
  std::vector<std::string> reasons;
  if (found.dp_alone) {
    const bool fits = found.dp_alone->fits;
    reasons.push_back("Copies on every rank need " + gigabytes(found.dp_alone->memory.total()) +
                      " (" + std::to_string(workload.precision.state()) +
                      " bytes a parameter, and activations); a rank has " +
                      gigabytes(cluster.memory_bytes) +
                      (fits ? ": nothing has to be split" : ": something has to be split"));
  }
  if (layout.tp > 1) {
    reasons.push_back(
        reason_for("Tensor parallelism over " + std::to_string(layout.tp) + " ranks of a node",
                   best, found.without_tp));
  }
  if (layout.pp > 1) {
    reasons.push_back(reason_for("A pipeline of " + std::to_string(layout.pp) + " ranks", best,
                                 found.without_pp));
  }
  if (layout.zero > 0) {
    reasons.push_back(reason_for("ZeRO-" + std::to_string(layout.zero), best, found.without_zero));
  }
  if (layout.recompute == Recompute::kFull) {
    reasons.push_back("Activations are computed again, a third more work, because they do not fit");
  }
  if (best.dp_s > 0.05 * best.step_s()) {
    reasons.push_back(
        "Gradients take longer than the backward pass beside them: larger batches, or "
        "faster links between nodes, would help most");
  }
  return reasons;
}

}  // namespace

Result<Recommendation> recommend(const Workload& workload, const Cluster& cluster) {
  const Search found = search(workload, cluster);
  if (found.best) return Recommendation{*found.best, reasons_for(workload, cluster, found)};
  if (found.smallest) {
    return Error{TR_INVALID_ARGUMENT, "nothing fits: the smallest layout, " +
                                          to_string(found.smallest->layout) + ", needs " +
                                          gigabytes(found.smallest->memory.total()) +
                                          " a rank of " + gigabytes(cluster.memory_bytes)};
  }
  // Not even shapes fit: let the simplest layout say why.
  LayoutChoice simplest;
  simplest.dp = cluster.ranks;
  TRY(make_plan(workload, cluster, simplest));
  return Error{TR_INTERNAL_ERROR, "no layout was tried"};
}

}  // namespace tr::par
