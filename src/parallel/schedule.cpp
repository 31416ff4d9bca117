#include "treering/parallel/schedule.hpp"

#include <algorithm>
#include <functional>

#include "parallel/schedule_parts.hpp"

namespace tr::par {
namespace {

// The k-th forward or backward pass of a rank.
using Order = std::function<Action(int k)>;

// Everything but zb-h1 is this loop: `warm_up` forward passes, then one forward and one backward in
// turn, then the backward passes that are left. More warm-up keeps more stages busy, and more
// activations.
std::vector<Action> alternate(int total, int warm_up, const Order& forward, const Order& backward) {
  std::vector<Action> actions;
  for (int k = 0; k < total + warm_up; ++k) {
    if (k < total) actions.push_back(forward(k));
    if (k >= warm_up) actions.push_back(backward(k - warm_up));
  }
  return actions;
}

// Rank r's one stage.
std::vector<Action> one_stage(int r, int m, int warm_up) {
  return alternate(
      m, std::min(warm_up, m),
      [r](int k) {
        return Action{ActionKind::kForward, r, k};
      },
      [r](int k) {
        return Action{ActionKind::kBackward, r, k};
      });
}

// Micro-batches go in groups of p: a rank runs a group through its first stage, then through its
// second, and so on; backward from the last stage to the first.
std::vector<Action> interleaved(int r, int p, int m, int v) {
  const auto stage = [r, p](int run) { return r + run * p; };
  const auto micro_batch = [p, v](int k) { return k / (p * v) * p + k % p; };
  const int warm_up = 2 * (p - r - 1) + (v - 1) * p;
  return alternate(
      m * v, std::min(warm_up, m * v),
      [=](int k) {
        return Action{ActionKind::kForward, stage(k % (p * v) / p), micro_batch(k)};
      },
      [=](int k) {
        return Action{ActionKind::kBackward, stage(v - 1 - k % (p * v) / p), micro_batch(k)};
      });
}

// 1f1b, but dx alone in the place of the backward pass. dW follows r micro-batches later: all ranks
// keep p micro-batches, as 1f1b's first does, and later ranks have dW left for the end, where 1f1b
// waits.
std::vector<Action> zero_bubble(int r, int p, int m) {
  std::vector<Action> actions;
  const int warm_up = std::min(p - r - 1, m);
  const auto weights = [&](int k) { actions.push_back({ActionKind::kBackwardWeights, r, k}); };
  for (int k = 0; k < m + warm_up; ++k) {
    if (k < m) actions.push_back({ActionKind::kForward, r, k});
    if (k < warm_up) continue;
    actions.push_back({ActionKind::kBackwardInput, r, k - warm_up});
    if (k - warm_up >= r) weights(k - warm_up - r);
  }
  for (int k = std::max(m - r, 0); k < m; ++k) weights(k);
  return actions;
}

std::string counts_of(int p, int m, int v) {
  return std::to_string(p) + " ranks, " + std::to_string(m) + " micro-batches, " +
         std::to_string(v) + " stages a rank";
}

Status check_numbers(std::string_view name, int p, int m, int v) {
  constexpr std::string_view kNames[] = {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"};
  const auto bad = [](std::string text) { return Error{TR_INVALID_ARGUMENT, std::move(text)}; };
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
    return bad("there is no schedule \"" + std::string(name) +
               "\"; there are naive, gpipe, 1f1b, interleaved and zb-h1");
  }
  if (p < 1 || m < 1 || v < 1 || p > kMaxRanks || m > kMaxMicroBatches || v > kMaxStages / p) {
    return bad("no schedule has " + counts_of(p, m, v) + ": each is at least 1, ranks at most " +
               std::to_string(kMaxRanks) + ", stages " + std::to_string(kMaxStages) +
               ", micro-batches " + std::to_string(kMaxMicroBatches));
  }
  if (name != "interleaved" && v > 1) {
    return bad("schedule " + std::string(name) + " has one stage a rank, not " + std::to_string(v) +
               "; interleaved has several");
  }
  if (name == "interleaved" && v > 1 && m % p != 0) {
    const int below = m / p * p;
    return bad("interleaved needs a multiple of " + std::to_string(p) + " micro-batches (" +
               (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + p) +
               "), not " + std::to_string(m));
  }
  return {};
}

}  // namespace

MessageEnd end_of(const Schedule& schedule, const Action& action) {
  const bool is_forward =
      action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kRecvActivation;
  const bool is_send =
      action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kSendGradient;
  // Activations go to the next stage, gradients to the one before.
  const int other = action.stage + (is_forward == is_send ? 1 : -1);
  return {rank_of_stage(schedule, other), is_send, is_forward};
}

void add_communication(Schedule& schedule) {
  const bool has_neighbours = schedule.ranks > 1;
  for (std::vector<Action>& actions : schedule.actions) {
    std::vector<Action> all;
    for (const Action& action : actions) {
      const auto with = [&](ActionKind kind) {
        return Action{kind, action.stage, action.micro_batch};
      };
      const bool has_previous = has_neighbours && action.stage > 0;
      const bool has_next = has_neighbours && !is_last_stage(schedule, action.stage);
      const bool is_forward = action.kind == ActionKind::kForward;
      const bool is_backward =
          action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput;
      if (is_forward && has_previous) all.push_back(with(ActionKind::kRecvActivation));
      if (is_backward && has_next) all.push_back(with(ActionKind::kRecvGradient));
      all.push_back(action);
      const bool adds_weights =
          action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeights;
      if (adds_weights && action.micro_batch == schedule.micro_batches - 1) {
        all.push_back({ActionKind::kReduceGradients, action.stage, 0});
      }
      if (is_forward && has_next) all.push_back(with(ActionKind::kSendActivation));
      if (is_backward && has_previous) all.push_back(with(ActionKind::kSendGradient));
    }
    actions = std::move(all);
  }
}

Result<Schedule> make_schedule(std::string_view name, int ranks, int micro_batches,
                               int stages_per_rank) {
  const int p = ranks, m = micro_batches, v = stages_per_rank;
  if (const Status sound = check_numbers(name, p, m, v); !sound) return sound.error();
  Schedule schedule{std::string(name), p, m, v, {}};
  for (int r = 0; r < p; ++r) {
    schedule.actions.push_back(name == "naive"   ? one_stage(r, m, 0)
                               : name == "gpipe" ? one_stage(r, m, m)
                               : name == "zb-h1" ? zero_bubble(r, p, m)
                               : v > 1           ? interleaved(r, p, m, v)
                                                 : one_stage(r, m, p - r - 1));
  }
  add_communication(schedule);
  return schedule;
}

double bubble_formula(std::string_view name, int ranks, int micro_batches, int stages_per_rank) {
  const double others = ranks - 1, m = micro_batches;
  if (name == "naive") return others / ranks;
  const double work = name == "zb-h1" ? 3 * m : stages_per_rank * m;
  return others / (work + others);
}

}  // namespace tr::par
