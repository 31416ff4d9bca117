// The proof of a schedule. Stages run their micro-batches in order, so that all there is to know of
// a stage is how many of each action it has done.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "parallel/schedule_parts.hpp"

namespace tr::par {
namespace {

Error unsound(std::string text) { return {TR_INVALID_ARGUMENT, std::move(text)}; }

// "rank 1, action 4 (SA0.1)"
std::string place(const Schedule& schedule, int rank, std::size_t index) {
  return "rank " + std::to_string(rank) + ", action " + std::to_string(index) + " (" +
         to_string(schedule.actions[rank][index], true) + ")";
}

// May the stage have such an action at all, and on this rank?
Status check_action(const Schedule& schedule, int rank, std::size_t index) {
  const Action& action = schedule.actions[rank][index];
  const auto bad = [&](const std::string& why) {
    return unsound(place(schedule, rank, index) + ": " + why);
  };
  const int stage = action.stage;
  if (stage < 0 || stage >= schedule.stages()) {
    return bad("there are stages 0 to " + std::to_string(schedule.stages() - 1));
  }
  if (rank_of_stage(schedule, stage) != rank) {
    return bad("stage " + std::to_string(stage) + " is on rank " +
               std::to_string(rank_of_stage(schedule, stage)));
  }
  if (action.micro_batch < 0 || action.micro_batch >= schedule.micro_batches) {
    return bad("there are micro-batches 0 to " + std::to_string(schedule.micro_batches - 1));
  }
  if (!is_communication(action.kind)) return {};
  if (schedule.ranks == 1) return bad("a single rank sends nothing");
  const bool to_next =
      action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kRecvGradient;
  if (to_next && is_last_stage(schedule, stage)) return bad("the last stage has no next one");
  if (!to_next && stage == 0) return bad("the first stage has none before it");
  return {};
}

Status check_shape(const Schedule& schedule) {
  if (schedule.ranks < 1 || schedule.micro_batches < 1 || schedule.stages_per_rank < 1 ||
      schedule.ranks > kMaxRanks || schedule.micro_batches > kMaxMicroBatches ||
      schedule.stages_per_rank > kMaxStages / schedule.ranks) {
    return unsound("a schedule of " + std::to_string(schedule.ranks) + " ranks, " +
                   std::to_string(schedule.micro_batches) + " micro-batches and " +
                   std::to_string(schedule.stages_per_rank) + " stages a rank");
  }
  if (schedule.actions.size() != static_cast<std::size_t>(schedule.ranks)) {
    return unsound("actions of " + std::to_string(schedule.actions.size()) + " ranks, not of " +
                   std::to_string(schedule.ranks));
  }
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      if (const Status sound = check_action(schedule, rank, i); !sound) return sound;
    }
  }
  return {};
}

// How many of each action a stage has issued, and done.
struct StageState {
  std::array<int, 9> issued = {}, done = {};
  int operator[](ActionKind kind) const { return done[static_cast<std::size_t>(kind)]; }
  int backward_inputs() const {
    return (*this)[ActionKind::kBackward] + (*this)[ActionKind::kBackwardInput];
  }
  int backwards() const {
    return (*this)[ActionKind::kBackward] + (*this)[ActionKind::kBackwardWeights];
  }
};

// The messages of a link so far, in the order in which each end issued them.
struct Link {
  std::vector<Action> sends, recvs;
};

class Replay {
 public:
  explicit Replay(const Schedule& schedule)
      : schedule_(schedule),
        stages_(static_cast<std::size_t>(schedule.stages())),
        ranks_(static_cast<std::size_t>(schedule.ranks)),
        facts_{std::vector<int>(static_cast<std::size_t>(schedule.ranks), 0)} {}

  Result<ScheduleFacts> run() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (const Status issued = issue_next_receives(rank, 0); !issued) return issued.error();
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.ranks; ++rank) {
        Result<bool> advanced = advance(rank);
        if (!advanced) return advanced.error();
        moved |= advanced.value();
      }
    }
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (open_wait(rank) != nullptr) return unsound(deadlock(rank));
    }
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      if (const Status whole = check_whole(stage); !whole) return whole.error();
    }
    return facts_;
  }

 private:
  // A message end that was issued: the number-th of its link.
  struct Wait {
    std::size_t action = 0;
    MessageEnd end;
    std::size_t number = 0;
  };
  struct RankState {
    std::size_t next = 0;
    std::vector<Wait> waits;  // of the exchange that the rank is in
    std::vector<Wait> ahead;  // receives of the next exchange
    int in_flight = 0;
  };

  // As far as the rank can go. Has it moved?
  Result<bool> advance(int rank) {
    RankState& state = ranks_[rank];
    bool moved = false;
    while (open_wait(rank) == nullptr) {
      for (const Wait& wait : state.waits) {
        const Action& over = schedule_.actions[rank][wait.action];
        ++stages_[over.stage].done[static_cast<std::size_t>(over.kind)];
      }
      state.waits.clear();
      if (state.next == schedule_.actions[rank].size()) return moved;
      moved = true;
      const bool is_exchange = is_communication(schedule_.actions[rank][state.next].kind);
      const Status done = is_exchange ? exchange(rank) : compute(rank, state.next++);
      if (!done) return done.error();
    }
    return moved;
  }

  Status exchange(int rank) {
    RankState& state = ranks_[rank];
    const std::vector<Action>& actions = schedule_.actions[rank];
    state.waits = std::exchange(state.ahead, {});
    for (; state.next < actions.size() && is_communication(actions[state.next].kind);
         ++state.next) {
      if (!end_of(schedule_, actions[state.next]).is_send) continue;
      if (const Status sent = check_send(rank, state.next); !sent) return sent;
      if (const Status issued = issue(rank, state.next, state.waits); !issued) return issued;
    }
    return issue_next_receives(rank, state.next);
  }

  // Those of the first exchange from action `from` on.
  Status issue_next_receives(int rank, std::size_t from) {
    const std::vector<Action>& actions = schedule_.actions[rank];
    while (from < actions.size() && !is_communication(actions[from].kind)) ++from;
    for (; from < actions.size() && is_communication(actions[from].kind); ++from) {
      if (end_of(schedule_, actions[from]).is_send) continue;
      if (const Status issued = issue(rank, from, ranks_[rank].ahead); !issued) return issued;
    }
    return {};
  }

  Status check_send(int rank, std::size_t index) const {
    const Action& action = schedule_.actions[rank][index];
    const StageState& stage = stages_[action.stage];
    const int computed = action.kind == ActionKind::kSendActivation ? stage[ActionKind::kForward]
                                                                    : stage.backward_inputs();
    if (action.micro_batch < computed) return {};
    return unsound(place(schedule_, rank, index) + ": the stage has not computed it yet");
  }

  Status issue(int rank, std::size_t index, std::vector<Wait>& waits) {
    const Action& action = schedule_.actions[rank][index];
    int& issued = stages_[action.stage].issued[static_cast<std::size_t>(action.kind)];
    if (const Status in_order = check_order(rank, index, issued++); !in_order) return in_order;
    const MessageEnd end = end_of(schedule_, action);
    Link& link = link_of(rank, end);
    std::vector<Action>& mine = end.is_send ? link.sends : link.recvs;
    const std::vector<Action>& theirs = end.is_send ? link.recvs : link.sends;
    waits.push_back({index, end, mine.size()});
    mine.push_back(action);
    if (mine.size() > theirs.size()) return {};
    const Action& other = theirs[mine.size() - 1];
    const int their_stage = action.stage + (end.is_send == end.is_forward ? 1 : -1);
    if (other.stage == their_stage && other.micro_batch == action.micro_batch) return {};
    return unsound(place(schedule_, rank, index) + ": rank " + std::to_string(end.peer) + " has " +
                   to_string(other, true) + " in its place; both must name the messages " +
                   "between them in the same order");
  }

  Status compute(int rank, std::size_t index) {
    const Action& action = schedule_.actions[rank][index];
    StageState& stage = stages_[action.stage];
    const int mb = action.micro_batch;
    const auto bad = [&](const std::string& what) {
      return unsound(place(schedule_, rank, index) + ": " + what);
    };
    if (action.kind == ActionKind::kReduceGradients) {
      if (stage[ActionKind::kReduceGradients] > 0)
        return bad("the stage's gradients are reduced already");
      if (stage.backwards() < schedule_.micro_batches) {
        return bad("the stage has run " + std::to_string(stage.backwards()) + " of " +
                   std::to_string(schedule_.micro_batches) + " backward passes");
      }
    } else if (action.kind == ActionKind::kForward) {
      if (const Status next = check_order(rank, index, stage[ActionKind::kForward]); !next)
        return next;
      if (!has_input(action.stage, mb)) return bad("the stage has not received its input");
      const int kept = ++ranks_[rank].in_flight;
      facts_.peak_in_flight[rank] = std::max(facts_.peak_in_flight[rank], kept);
    } else {
      const bool is_input = action.kind != ActionKind::kBackwardWeights;
      const bool is_weights = action.kind != ActionKind::kBackwardInput;
      const int next = is_input ? stage.backward_inputs() : stage.backwards();
      if (const Status in_order = check_order(rank, index, next); !in_order) return in_order;
      if (is_input && stage[ActionKind::kForward] <= mb) return bad("its forward pass has not run");
      if (is_input && !has_gradient(action.stage, mb)) {
        return bad("the stage has not received its gradient");
      }
      if (!is_input && stage.backward_inputs() <= mb)
        return bad("the input's gradient comes first");
      if (is_weights && stage.backwards() != mb) return bad("an earlier one's weights come first");
      if (is_weights) --ranks_[rank].in_flight;
    }
    ++stage.done[static_cast<std::size_t>(action.kind)];
    return {};
  }

  bool has_input(int stage, int mb) const {
    if (stage == 0) return true;
    if (schedule_.ranks == 1) return stages_[stage - 1][ActionKind::kForward] > mb;
    return stages_[stage][ActionKind::kRecvActivation] > mb;
  }
  bool has_gradient(int stage, int mb) const {
    if (is_last_stage(schedule_, stage)) return true;
    if (schedule_.ranks == 1) return stages_[stage + 1].backward_inputs() > mb;
    return stages_[stage][ActionKind::kRecvGradient] > mb;
  }

  Status check_order(int rank, std::size_t index, int expected) const {
    if (schedule_.actions[rank][index].micro_batch == expected) return {};
    return unsound(place(schedule_, rank, index) + ": micro-batch " + std::to_string(expected) +
                   " is next; a stage runs them in order");
  }

  Link& link_of(int rank, const MessageEnd& end) {
    return links_[{end.is_send ? rank : end.peer, end.is_send ? end.peer : rank, end.is_forward}];
  }

  // What `rank` waits for first, if it waits.
  const Wait* open_wait(int rank) {
    for (const Wait& wait : ranks_[rank].waits) {
      const Link& link = link_of(rank, wait.end);
      if (wait.number >= (wait.end.is_send ? link.recvs : link.sends).size()) return &wait;
    }
    return nullptr;
  }

  // Follows who waits for whom from `rank` until somebody comes twice, or has come to the end.
  std::string deadlock(int rank) {
    std::vector<int> chain;
    while (std::find(chain.begin(), chain.end(), rank) == chain.end() && open_wait(rank)) {
      chain.push_back(rank);
      rank = open_wait(rank)->end.peer;
    }
    const auto cycle = std::find(chain.begin(), chain.end(), rank);
    const bool is_cycle = cycle != chain.end();
    std::string text = is_cycle ? "deadlock: " : "";
    for (auto at = is_cycle ? cycle : chain.begin(); at != chain.end(); ++at) {
      const Wait& wait = *open_wait(*at);
      text += place(schedule_, *at, wait.action) + " waits for rank " +
              std::to_string(wait.end.peer) + " to " + (wait.end.is_send ? "receive" : "send") +
              "; ";
    }
    if (is_cycle)
      return text + "so none goes on: one of them must send what it has before it waits";
    return text + "rank " + std::to_string(rank) + " comes to its end without it";
  }

  Status check_whole(int stage) const {
    const StageState& state = stages_[stage];
    const auto lacks = [&](const char* what, int done) {
      return unsound("stage " + std::to_string(stage) + " runs " + std::to_string(done) + " of " +
                     std::to_string(schedule_.micro_batches) + " micro-batches " + what);
    };
    const int m = schedule_.micro_batches;
    if (state[ActionKind::kForward] < m) return lacks("forward", state[ActionKind::kForward]);
    if (state.backward_inputs() < m) return lacks("backward", state.backward_inputs());
    if (state.backwards() < m) return lacks("backward to the weights", state.backwards());
    if (state[ActionKind::kReduceGradients] == 0) {
      return unsound("the gradients of stage " + std::to_string(stage) + " are never reduced (R)");
    }
    return {};
  }

  const Schedule& schedule_;
  std::vector<StageState> stages_;
  std::vector<RankState> ranks_;
  std::map<std::tuple<int, int, bool>, Link> links_;  // sender, receiver, is it forward
  ScheduleFacts facts_;
};

}  // namespace

Result<ScheduleFacts> verify(const Schedule& schedule) {
  if (const Status sound = check_shape(schedule); !sound) return sound.error();
  return Replay(schedule).run();
}

}  // namespace tr::par
