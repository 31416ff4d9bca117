#include "comm/launches.hpp"

#include <algorithm>

namespace treering {

std::vector<std::vector<std::size_t>> launches_of(std::span<const GroupedCall> calls) {
  using Launch = std::vector<std::size_t>;
  std::vector<Launch> launches;
  const auto place_of_collective = [&](const GroupedCall& call) -> Launch* {
    if (launches.empty()) return nullptr;
    const GroupedCall& before = calls[launches.back().front()];
    const bool alike = before.on_device && !before.is_message && before.comm == call.comm &&
                       before.stream == call.stream;
    return alike ? &launches.back() : nullptr;
  };
  // The launch that `call` joins.
  const auto place_of = [&](const GroupedCall& call) -> Launch* {
    if (!call.on_device) return nullptr;
    if (!call.is_message) return place_of_collective(call);
    for (auto launch = launches.rbegin(); launch != launches.rend(); ++launch) {
      const bool follows = std::any_of(launch->begin(), launch->end(), [&](std::size_t i) {
        return must_follow(call.footprint, calls[i].footprint);
      });
      const GroupedCall& first = calls[launch->front()];
      if (follows) return nullptr;
      if (first.on_device && first.comm == call.comm) {
        return first.is_message ? &*launch : nullptr;
      }
    }
    return nullptr;
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (Launch* const launch = place_of(calls[i])) {
      launch->push_back(i);
    } else {
      launches.push_back({i});
    }
  }
  return launches;
}

}  // namespace treering
