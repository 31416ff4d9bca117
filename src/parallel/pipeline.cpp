#include "treering/parallel/pipeline.hpp"

#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "parallel/digest.hpp"
#include "parallel/host_gather.hpp"
#include "parallel/schedule_parts.hpp"
#include "parallel/try.hpp"

namespace tr::par {
namespace {

constexpr int kExchangesKept = 2;  // sends of older exchanges are waited for

Error unfit(std::string text) { return {TR_INVALID_ARGUMENT, std::move(text)}; }

// Do all ranks have the same schedule?
Status compare_schedules(Mesh& mesh, Compute& compute, const Schedule& schedule) {
  if (mesh.world().is_dry() || compute.is_dry()) return {};
  const double mine = digest_of(to_csv(schedule));
  TRY_ASSIGN(const std::vector<double> all, gather_over(mesh.world(), compute, {&mine, 1}));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return Error{TR_MISMATCH, "rank " + std::to_string(rank) +
                                  " has another pipeline schedule than rank 0; this rank's is " +
                                  schedule.name};
  }
  return {};
}

// Does every stage take what the one before it gives?
Status compare_widths(Mesh& mesh, Compute& compute, const Schedule& schedule,
                      const std::vector<Stage*>& stages) {
  if (mesh.world().is_dry() || compute.is_dry()) return {};
  std::vector<double> mine;
  for (const Stage* stage : stages) {
    mine.push_back(static_cast<double>(stage->input_width()));
    mine.push_back(static_cast<double>(stage->output_width()));
  }
  TRY_ASSIGN(const std::vector<double> all, gather_over(mesh.pp_forward(), compute, mine));
  const auto width = [&](int stage, int side) {
    const int run = stage / schedule.ranks, rank = rank_of_stage(schedule, stage);
    return static_cast<std::int64_t>(
        all[static_cast<std::size_t>((rank * schedule.stages_per_rank + run) * 2 + side)]);
  };
  for (int stage = 1; stage < schedule.stages(); ++stage) {
    if (width(stage, 0) == width(stage - 1, 1)) continue;
    return unfit("stage " + std::to_string(stage) + " takes " + std::to_string(width(stage, 0)) +
                 " columns, but stage " + std::to_string(stage - 1) + " gives " +
                 std::to_string(width(stage - 1, 1)));
  }
  return {};
}

class PipelineOfMesh final : public Pipeline {
 public:
  PipelineOfMesh(Mesh& mesh, Compute& compute, Schedule schedule, std::vector<Stage*> stages,
                 DType type)
      : mesh_(mesh),
        compute_(compute),
        schedule_(std::move(schedule)),
        stages_(std::move(stages)),
        type_(type) {}

  Result<Score> run(const PipelineInput& input, ActionObserver* observer) override;
  const Schedule& schedule() const override { return schedule_; }

 private:
  friend class Step;
  Mesh& mesh_;
  Compute& compute_;
  Schedule schedule_;
  std::vector<Stage*> stages_;
  DType type_;
};

// One step of one rank.
class Step {
 public:
  Step(PipelineOfMesh& pipeline, const PipelineInput& input, ActionObserver* observer)
      : pipeline_(pipeline),
        schedule_(pipeline.schedule_),
        actions_(schedule_.actions[pipeline.mesh_.at().pp]),
        input_(input),
        observer_(observer) {}

  Result<Score> run() {
    TRY(issue_next_receives(0));
    for (std::size_t next = 0; next < actions_.size();) {
      if (is_communication(actions_[next].kind)) {
        TRY(exchange(next));
        continue;
      }
      TRY(observed(actions_[next], [&] { return compute(actions_[next]); }));
      ++next;
    }
    while (!sent_.empty()) TRY(end_oldest_send());
    return score_;
  }

 private:
  // Of the stage that needs it.
  using Key = std::tuple<int, int, bool>;  // stage, micro-batch, is it an activation
  // In this order, so that an operation has ended before its memory goes.
  struct Message {
    Spread data;
    InFlight moving;
    int exchange = 0;
  };

  // Runs `body` as `action`; its error says where it happened.
  template <class Body>
  Status observed(const Action& action, const Body& body) {
    if (observer_ != nullptr) observer_->begin(action);
    const Status done = body();
    if (observer_ != nullptr) observer_->end(action);
    if (done) return {};
    return Error{done.error().code, "pipeline, " + to_string(action) + " of stage " +
                                        std::to_string(action.stage) + ": " + done.error().message};
  }

  // All actions of the exchange at `next`, which moves behind it.
  Status exchange(std::size_t& next) {
    std::size_t end = next;
    for (; end < actions_.size() && is_communication(actions_[end].kind); ++end) {
      const Action& action = actions_[end];
      if (end_of(schedule_, action).is_send) TRY(observed(action, [&] { return send(action); }));
    }
    TRY(issue_next_receives(end));
    for (; next < end; ++next) {
      const Action& action = actions_[next];
      if (end_of(schedule_, action).is_send) continue;
      TRY(observed(action, [&] { return arrivals_[key_of(action)].moving.wait(); }));
    }
    ++exchanges_;
    while (!sent_.empty() && sent_.front().exchange + kExchangesKept < exchanges_) {
      TRY(end_oldest_send());
    }
    return {};
  }

  // Those of the first exchange from action `from` on.
  Status issue_next_receives(std::size_t from) {
    while (from < actions_.size() && !is_communication(actions_[from].kind)) ++from;
    for (; from < actions_.size() && is_communication(actions_[from].kind); ++from) {
      if (!end_of(schedule_, actions_[from]).is_send) TRY(receive(actions_[from]));
    }
    return {};
  }

  Status send(const Action& action) {
    const MessageEnd end = end_of(schedule_, action);
    const auto output = outputs_.find(key_of(action));
    Message message{std::move(output->second), {}, exchanges_};
    outputs_.erase(output);
    TRY_ASSIGN(const Comm::Mark mark, comm_of(end).send(message.data.tensor.view(), end.peer));
    message.moving = InFlight(comm_of(end), mark);
    sent_.push_back(std::move(message));
    return {};
  }

  Status receive(const Action& action) {
    const MessageEnd end = end_of(schedule_, action);
    const Stage& stage = stage_of(action);
    const std::int64_t width = end.is_forward ? stage.input_width() : stage.output_width();
    const std::int64_t rows = batch_of(action).rows;
    const Layout layout = stage.boundary();
    TRY_ASSIGN(const LocalShape shape,
               local_shape(layout, rows, width, pipeline_.mesh_.tp().size()));
    Message message;
    message.data.layout = layout;
    TRY_ASSIGN(message.data.tensor, Tensor::make(pipeline_.compute_.memory(), Use::kActivations,
                                                 shape.rows, shape.cols, pipeline_.type_));
    TRY_ASSIGN(const Comm::Mark mark, comm_of(end).recv(message.data.tensor.view(), end.peer));
    message.moving = InFlight(comm_of(end), mark);
    arrivals_[key_of(action)] = std::move(message);
    return {};
  }

  Status compute(const Action& action) {
    const int mb = action.micro_batch;
    const bool is_last = mb == schedule_.micro_batches - 1;
    switch (action.kind) {
      case ActionKind::kForward:
        return forward(action);
      case ActionKind::kBackward:
        return backward(action, is_last, false);
      case ActionKind::kBackwardInput:
        return backward(action, false, true);
      case ActionKind::kBackwardWeights:
        return stage_of(action).weights(mb, is_last);
      default:
        return {};  // the stage said so itself, layer by layer, in its last backward pass
    }
  }

  Status forward(const Action& action) {
    const int stage = action.stage, mb = action.micro_batch;
    Spread x;
    if (stage == 0) {
      TRY_ASSIGN(x, input_.inputs(batch_of(action)));
    } else {
      x = take(Key{stage, mb, true});
    }
    TRY_ASSIGN(Spread y, stage_of(action).forward(batch_of(action), std::move(x)));
    if (!is_last_stage(schedule_, stage)) {
      hand_over(Key{stage, mb, true}, Key{stage + 1, mb, true}, std::move(y));
      return {};
    }
    TRY_ASSIGN(PipelineInput::Loss loss, input_.loss(batch_of(action), y));
    score_.loss_sum += loss.score.loss_sum;
    score_.correct += loss.score.correct;
    score_.rows += loss.score.rows;
    arrivals_[Key{stage, mb, false}].data = std::move(loss.gradient);
    return {};
  }

  Status backward(const Action& action, bool is_last, bool split_weights) {
    const int stage = action.stage, mb = action.micro_batch;
    TRY_ASSIGN(Spread dx,
               stage_of(action).backward(mb, take(Key{stage, mb, false}), is_last, split_weights));
    if (stage > 0) hand_over(Key{stage, mb, false}, Key{stage - 1, mb, false}, std::move(dx));
    return {};
  }

  // To the rank's own next stage, or to where its send finds it.
  void hand_over(const Key& mine, const Key& theirs, Spread data) {
    if (schedule_.ranks == 1) {
      arrivals_[theirs].data = std::move(data);
    } else {
      outputs_[mine] = std::move(data);
    }
  }
  Spread take(const Key& key) {
    const auto arrival = arrivals_.find(key);
    Spread data = std::move(arrival->second.data);
    arrivals_.erase(arrival);
    return data;
  }
  Status end_oldest_send() {
    const Status ended = sent_.front().moving.wait();
    sent_.pop_front();
    return ended;
  }

  // Of the stage that the action names: what it sends or receives.
  Key key_of(const Action& action) const {
    return {action.stage, action.micro_batch, end_of(schedule_, action).is_forward};
  }
  Comm& comm_of(const MessageEnd& end) {
    return end.is_forward ? pipeline_.mesh_.pp_forward() : pipeline_.mesh_.pp_backward();
  }
  Stage& stage_of(const Action& action) {
    return *pipeline_.stages_[static_cast<std::size_t>(action.stage / schedule_.ranks)];
  }
  const MicroBatch& batch_of(const Action& action) const {
    return input_.batches[static_cast<std::size_t>(action.micro_batch)];
  }

  PipelineOfMesh& pipeline_;
  const Schedule& schedule_;
  const std::vector<Action>& actions_;
  const PipelineInput& input_;
  ActionObserver* observer_;
  std::map<Key, Message> arrivals_;  // by the stage that needs it
  std::map<Key, Spread> outputs_;    // by the stage that made it
  std::deque<Message> sent_;
  int exchanges_ = 0;
  Score score_;
};

Result<Score> PipelineOfMesh::run(const PipelineInput& input, ActionObserver* observer) {
  if (input.batches.size() != static_cast<std::size_t>(schedule_.micro_batches)) {
    return unfit("the schedule is for " + std::to_string(schedule_.micro_batches) +
                 " micro-batches, not " + std::to_string(input.batches.size()));
  }
  return Step(*this, input, observer).run();
}

}  // namespace

Result<std::unique_ptr<Pipeline>> Pipeline::create(Mesh& mesh, Compute& compute, Schedule schedule,
                                                   std::vector<Stage*> stages, DType type) {
  TRY(compare_schedules(mesh, compute, schedule));
  TRY(verify(schedule));
  if (schedule.ranks != mesh.shape().pp) {
    return unfit("the schedule is for " + std::to_string(schedule.ranks) +
                 " ranks, but the mesh has pp " + std::to_string(mesh.shape().pp));
  }
  if (stages.size() != static_cast<std::size_t>(schedule.stages_per_rank)) {
    return unfit("the schedule has " + std::to_string(schedule.stages_per_rank) +
                 " stages a rank, not " + std::to_string(stages.size()));
  }
  TRY(compare_widths(mesh, compute, schedule, stages));
  return std::unique_ptr<Pipeline>(std::make_unique<PipelineOfMesh>(
      mesh, compute, std::move(schedule), std::move(stages), type));
}

}  // namespace tr::par
