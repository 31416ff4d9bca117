// Pipeline schedules as data: printed, compared, loaded from CSV, simulated, and proven before they
// run.
//
//   naive        one micro-batch after the other, forward and backward
//   gpipe        all forward, then all backward, in the same order (Huang et al., NeurIPS 2019)
//   1f1b         a backward as soon as there is one: p - s micro-batches in flight instead of m
//                (Narayanan et al., "PipeDream", SOSP 2019; Megatron-LM's flush)
//   interleaved  v runs of layers a rank: the bubble shrinks by v (Narayanan et al., SC 2021)
//   zb-h1        backward split in two, dx at once and dW into the bubble (Qi et al., "Zero Bubble
//                Pipeline Parallelism", ICLR 2024)
//
// A stage is a run of layers; rank r of p has stages r, r + p, ... (v of them). A step's actions of
// a rank run one after another; sends do not wait, receives do. Stages next to each other on one
// rank (p = 1) send nothing.
//
// Communication that stands side by side is an exchange. A rank issues an exchange's sends together
// with the receives of its next one, which arrive while it computes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "treering/result.hpp"

namespace tr::par {

struct Action {
  enum class Kind : std::uint8_t {
    kForward,
    kBackward,         // dx and dW
    kBackwardInput,    // dx
    kBackwardWeights,  // dW
    kSendActivation,
    kRecvActivation,
    kSendGradient,
    kRecvGradient,
    kReduceGradients,  // of the stage: its last backward is behind it
  };
  Kind kind = Kind::kForward;
  int stage = 0;
  int micro_batch = 0;
  bool operator==(const Action&) const = default;
};
// "F3" is the forward pass of micro-batch 3, "F3.2" that of stage 2. B backward, I and W its
// halves; SA, RA, SG, RG send and receive activations and gradients; R reduce (of all
// micro-batches).
std::string to_string(const Action& action, bool with_stage = false);
bool is_compute(Action::Kind kind);        // F, B, I, W
bool is_communication(Action::Kind kind);  // SA, RA, SG, RG: between ranks of the pipeline

struct Schedule {
  std::string name;
  int ranks = 1, micro_batches = 1, stages_per_rank = 1;
  std::vector<std::vector<Action>> actions;  // by rank
  int stages() const { return ranks * stages_per_rank; }
};

// "naive", "gpipe", "1f1b", "interleaved", "zb-h1". Any p, m, v >= 1, m < p too; v > 1 only
// interleaved, whose m must be a multiple of p (TR_INVALID_ARGUMENT says what would do).
Result<Schedule> make_schedule(std::string_view name, int ranks, int micro_batches,
                               int stages_per_rank = 1);
// One line an action: rank,action,stage,micro_batch ("0,F,0,3"); a first line of these words, empty
// lines and lines that begin with # are skipped. If F, B, I and W alone are given, the others are
// put where they belong. Errors name the line. What it says is for verify to judge.
Result<Schedule> schedule_from_csv(std::string_view text);
std::string to_csv(const Schedule& schedule);
// A row a rank; only what is computed, or with communication too.
std::string to_string(const Schedule& schedule, bool with_communication = false);

struct ScheduleFacts {
  // By rank: micro-batches of its stages whose activations are kept, from F to the end of B or W.
  std::vector<int> peak_in_flight;
};
// Replays all ranks with exchanges that end when every send's receive has been issued, and the
// other way round (the strictest links there are). Proves that every stage runs every micro-batch
// forward once and then backward once, in order (so that every schedule sums gradients in the same
// order), with what it needs from its neighbours there; that every receive has one send, in the
// same order on a link; that nobody waits for ever; that gradients are reduced after a stage's last
// backward. The error says what is wrong: of a deadlock, who waits for whom.
Result<ScheduleFacts> verify(const Schedule& schedule);

// Durations of one stage, in any unit.
struct StageTimes {
  double forward = 1.0, backward_input = 1.0, backward_weights = 1.0;
  double send = 0.0;  // latency of a message to a neighbour
};
struct Timeline {
  struct Span {
    Action action;
    double begin = 0.0, end = 0.0;
  };
  std::vector<std::vector<Span>> ranks;
  double makespan = 0.0;
  std::vector<double> busy;  // by rank
  double bubble() const;     // idle share of all ranks' time
};
Result<Timeline> simulate(const Schedule& schedule, const StageTimes& times);
// A row a rank; each computation as many columns wide as its time has units.
std::string draw(const Timeline& timeline, double unit = 1.0);
// The idle share of the ranks' time: (p-1)/(m+p-1), naive (p-1)/p, interleaved (p-1)/(v m+p-1).
// zb-h1 has a third of 1f1b's idle time if F, I and W take equally long and m >= p: (p-1)/(3
// m+p-1).
double bubble_formula(std::string_view name, int ranks, int micro_batches, int stages_per_rank = 1);

}  // namespace tr::par
