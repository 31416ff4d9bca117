#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "parallel/schedule_parts.hpp"

namespace tr::par {
namespace {

double time_of(ActionKind kind, const StageTimes& times) {
  switch (kind) {
    case ActionKind::kForward:
      return times.forward;
    case ActionKind::kBackward:
      return times.backward_input + times.backward_weights;
    case ActionKind::kBackwardInput:
      return times.backward_input;
    case ActionKind::kBackwardWeights:
      return times.backward_weights;
    default:
      return 0.0;
  }
}

}  // namespace

double Timeline::bubble() const {
  const double all = makespan * static_cast<double>(busy.size());
  if (all <= 0.0) return 0.0;
  return 1.0 - std::accumulate(busy.begin(), busy.end(), 0.0) / all;
}

Result<Timeline> simulate(const Schedule& schedule, const StageTimes& times) {
  for (const double time :
       {times.forward, times.backward_input, times.backward_weights, times.send}) {
    if (std::isfinite(time) && time >= 0.0) continue;
    return Error{TR_INVALID_ARGUMENT, "a stage's times must be numbers that are not negative"};
  }
  if (const Result<ScheduleFacts> proven = verify(schedule); !proven) return proven.error();
  const auto n = static_cast<std::size_t>(schedule.ranks);
  Timeline timeline{std::vector<std::vector<Timeline::Span>>(n), 0.0, std::vector<double>(n, 0.0)};
  std::vector<double> now(n, 0.0);
  std::map<std::tuple<int, int, bool>, double> arrivals;  // receiving stage, micro-batch, forward
  // Runs a rank until it waits for what nobody has sent yet; verify has proven that this ends.
  const auto advance = [&](std::size_t rank) {
    std::vector<Timeline::Span>& spans = timeline.ranks[rank];
    while (spans.size() < schedule.actions[rank].size()) {
      const Action& action = schedule.actions[rank][spans.size()];
      const double begin = now[rank];
      if (is_communication(action.kind)) {
        const MessageEnd end = end_of(schedule, action);
        if (end.is_send) {
          const int receiver = action.stage + (end.is_forward ? 1 : -1);
          arrivals[{receiver, action.micro_batch, end.is_forward}] = begin + times.send;
        } else {
          const auto arrival = arrivals.find({action.stage, action.micro_batch, end.is_forward});
          if (arrival == arrivals.end()) return;
          now[rank] = std::max(begin, arrival->second);
        }
      }
      now[rank] += time_of(action.kind, times);
      timeline.busy[rank] += time_of(action.kind, times);
      spans.push_back({action, begin, now[rank]});
    }
  };
  const auto is_over = [&](std::size_t rank) {
    return timeline.ranks[rank].size() == schedule.actions[rank].size();
  };
  for (bool all = false; !all;) {
    all = true;
    for (std::size_t rank = 0; rank < n; ++rank) {
      advance(rank);
      all = all && is_over(rank);
    }
  }
  timeline.makespan = *std::max_element(now.begin(), now.end());
  return timeline;
}

}  // namespace tr::par
