// The fastest layout that fits, and why.
#include <algorithm>
#include <array>
#include <cstdio>

#include "treering/parallel/plan.hpp"

#include "parallel/try.hpp"

namespace tr::par {
namespace {

std::string gigabytes(double bytes) {
  char text[48];
  std::snprintf(text, sizeof text, "%.3g GB", bytes / 1e9);
  return text;
}

using Plans = std::vector<Plan>;

// What a simpler layout has less of, the most important first.
std::array<std::int64_t, 6> complexity(const LayoutChoice& layout) {
  const int kinds = (layout.tp > 1) + (layout.pp > 1) + (layout.zero > 0);
  return {layout.recompute == Recompute::kFull,
          kinds,
          layout.tp * layout.pp,
          layout.zero,
          layout.pp,
          -layout.micro_batch};
}

// The simplest of those that are as fast as the fastest, as far as such a prediction can tell.
template <class Wanted>
const Plan* best_of(const Plans& plans, const Wanted& wanted) {
  constexpr double kSame = 1.05;
  const Plan *fastest = nullptr, *best = nullptr;
  for (const Plan& plan : plans) {
    if (!plan.fits || !wanted(plan.layout)) continue;
    if (fastest == nullptr || plan.step_s() < fastest->step_s()) fastest = &plan;
  }
  for (const Plan& plan : plans) {
    if (!plan.fits || !wanted(plan.layout) || plan.step_s() > fastest->step_s() * kSame) continue;
    if (best == nullptr || complexity(plan.layout) < complexity(best->layout)) best = &plan;
  }
  return best;
}

// Of those that fit and those that do not.
template <class Wanted>
const Plan* smallest_of(const Plans& plans, const Wanted& wanted) {
  const Plan* smallest = nullptr;
  for (const Plan& plan : plans) {
    if (!wanted(plan.layout)) continue;
    if (smallest == nullptr || plan.memory.total() < smallest->memory.total()) smallest = &plan;
  }
  return smallest;
}

// Every divisor triple of the ranks; tensor parallelism inside a node only, where links are fast.
Plans all_plans(const Workload& workload, const Cluster& cluster) {
  Plans found;
  const auto consider = [&](const LayoutChoice& layout) {
    if (const Result<Plan> plan = make_plan(workload, cluster, layout); plan) {
      found.push_back(plan.value());
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

std::string duration(double seconds) {
  char text[48];
  std::snprintf(text, sizeof text, seconds < 1.0 ? "%.3g ms" : "%.3g s",
                seconds < 1.0 ? seconds * 1e3 : seconds);
  return text;
}

// What one kind of splitting is for: without it nothing fits, or the best is slower.
std::string reason_for(const std::string& what, const Plan& best, const Plan* without) {
  if (without == nullptr) return what + ": without it nothing fits";
  const std::string other = duration(without->step_s()) + " (" + to_string(without->layout) + ")";
  if (without->step_s() <= best.step_s()) {
    return what + ": simpler than what does without it and is no more than 5 % faster, " + other;
  }
  return what + ": a step takes " + duration(best.step_s()) + ", without it " + other;
}

std::vector<std::string> reasons_for(const Workload& workload, const Cluster& cluster,
                                     const Plans& plans, const Plan& best) {
  const LayoutChoice& layout = best.layout;
  std::vector<std::string> reasons;
  const Plan* copies = smallest_of(
      plans, [](const LayoutChoice& one) { return one.tp == 1 && one.pp == 1 && one.zero == 0; });
  if (copies != nullptr) {
    reasons.push_back("Copies on every rank need " + gigabytes(copies->memory.total()) + " (" +
                      std::to_string(workload.precision.state()) +
                      " bytes a parameter, and activations); a rank has " +
                      gigabytes(cluster.memory_bytes) +
                      (copies->fits ? ": nothing has to be split" : ": something has to be split"));
  }
  if (layout.tp > 1) {
    reasons.push_back(
        reason_for("Tensor parallelism over " + std::to_string(layout.tp) + " ranks of a node",
                   best, best_of(plans, [](const LayoutChoice& one) { return one.tp == 1; })));
  }
  if (layout.pp > 1) {
    reasons.push_back(
        reason_for("A pipeline of " + std::to_string(layout.pp) + " ranks", best,
                   best_of(plans, [](const LayoutChoice& one) { return one.pp == 1; })));
  }
  if (layout.zero > 0) {
    reasons.push_back(
        reason_for("ZeRO-" + std::to_string(layout.zero), best,
                   best_of(plans, [](const LayoutChoice& one) { return one.zero == 0; })));
  }
  if (layout.recompute == Recompute::kFull) {
    reasons.push_back(
        "Activations are computed again, a third more work: what keeps them does not "
        "fit, or is slower");
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
  const Plans plans = all_plans(workload, cluster);
  const auto any = [](const LayoutChoice&) { return true; };
  if (const Plan* best = best_of(plans, any); best != nullptr) {
    return Recommendation{*best, reasons_for(workload, cluster, plans, *best)};
  }
  if (const Plan* smallest = smallest_of(plans, any); smallest != nullptr) {
    return Error{TR_INVALID_ARGUMENT, "nothing fits: the smallest layout, " +
                                          to_string(smallest->layout) + ", needs " +
                                          gigabytes(smallest->memory.total()) + " a rank of " +
                                          gigabytes(cluster.memory_bytes)};
  }
  // Not even shapes fit: let the simplest layout say why.
  LayoutChoice simplest;
  simplest.dp = cluster.ranks;
  TRY(make_plan(workload, cluster, simplest));
  return Error{TR_INTERNAL_ERROR, "no layout was tried"};
}

}  // namespace tr::par
