// What the files of schedule.hpp share.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "treering/parallel/schedule.hpp"

namespace tr::par {

using ActionKind = Action::Kind;

// More than these is taken for a mistake.
inline constexpr int kMaxRanks = 4096, kMaxStages = 1 << 16, kMaxMicroBatches = 1 << 20;

// "F", "SA"; the first column of the table of actions.
const char* symbol_of(ActionKind kind);
std::optional<ActionKind> kind_of(std::string_view symbol);

inline int rank_of_stage(const Schedule& schedule, int stage) { return stage % schedule.ranks; }
inline bool is_last_stage(const Schedule& schedule, int stage) {
  return stage == schedule.stages() - 1;
}
// One end of a message: who has the other, and on which link. Links are one for each pair of ranks
// and direction; the k-th send is the k-th receive.
struct MessageEnd {
  int peer = 0;  // rank
  bool is_send = false;
  bool is_forward = false;  // activations
};
MessageEnd end_of(const Schedule& schedule, const Action& action);

// Puts sends, receives and reductions where they belong among what the ranks compute.
void add_communication(Schedule& schedule);

}  // namespace tr::par
