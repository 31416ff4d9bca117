#include <algorithm>
#include <vector>

#include "treering/parallel/rng.hpp"

#include "parallel/agree.hpp"
#include "parallel/batches.hpp"
#include "parallel/trainer_of_mesh.hpp"

namespace tr::par {

// Forward through stage `number`: from the rank of the stage before, to the rank of the next.
Result<Spread> TrainerOfMesh::forward_stage(Stage& stage, int number, const Data& data,
                                            std::span<const std::int64_t> rows,
                                            const MicroBatch& batch, Spread x) {
  const int pp = mesh_.shape().pp, stages = pp * options_.stages_per_rank;
  Comm& comm = mesh_.pp_forward();
  if (number == 0) {
    Result<Spread> read = inputs(data, rows, batch);
    if (!read) return read.error();
    x = std::move(read).value();
  } else if (pp > 1) {
    const std::int64_t shards = stage.boundary() == Layout::kRows ? mesh_.shape().tp : 1;
    Result<Tensor> received = Tensor::make(compute_.memory(), Use::kActivations,
                                           batch.rows / shards, stage.input_width(), options_.type);
    if (!received) return received.error();
    Result<Comm::Mark> mark = comm.recv(received.value().view(), (number - 1) % pp);
    if (!mark) return mark.error();
    if (Status s = comm.wait(mark.value()); !s) return s.error();
    x = {std::move(received).value(), stage.boundary()};
  }
  Result<Spread> y = stage.forward(batch, std::move(x));
  if (!y || number == stages - 1 || pp == 1) return y;
  Result<Comm::Mark> mark = comm.send(y.value().tensor.view(), (number + 1) % pp);
  if (!mark) return mark.error();
  if (Status s = comm.wait(mark.value()); !s) return s.error();
  return y;
}

Result<Score> TrainerOfMesh::evaluate(const Data& data, std::span<const std::int64_t> rows) {
  if (Status s = check_features(data, rows); !s) return s.error();
  // To a number that all ranks can share, the last row is there several times; it counts once.
  const auto total = static_cast<std::int64_t>(rows.size()), unit = cut().unit;
  std::vector<std::int64_t> padded(rows.begin(), rows.end());
  padded.resize(static_cast<std::size_t>((total + unit - 1) / unit * unit), rows.back());
  Score mine;
  for (MicroBatch batch : batches_of(static_cast<std::int64_t>(padded.size()))) {
    batch.is_training = false;
    Spread x;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const int number = mesh_.at().pp + static_cast<int>(i) * mesh_.shape().pp;
      Result<Spread> y = forward_stage(*stages_[i], number, data, padded, batch, std::move(x));
      if (!y) return y.error();
      x = std::move(y).value();
    }
    if (!is_last_stage_here()) continue;
    batch.rows = std::clamp<std::int64_t>(total - batch.first_row, 0, batch.rows);
    Result<Score> score = loss(data, padded, batch, x.tensor.view().row_range(0, batch.rows),
                               normalizer(total), View{});
    if (!score) return score.error();
    mine.loss_sum += score.value().loss_sum;
    mine.correct += score.value().correct;
    mine.rows += score.value().rows;
  }
  return sum_scores(mine);
}

Result<std::int64_t> TrainerOfMesh::activation_bytes(std::int64_t rows) const {
  const BatchCut how = cut();
  const std::int64_t longest = how.longest(rows, mesh_.shape().dp);
  const Result<Schedule> schedule = schedule_for(how.count(rows, mesh_.shape().dp));
  if (!schedule) return schedule.error();
  const Result<ScheduleFacts> facts = verify(schedule.value());
  if (!facts) return facts.error();
  const std::vector<Action>& actions =
      schedule.value().actions[static_cast<std::size_t>(mesh_.at().pp)];
  const bool splits = std::any_of(actions.begin(), actions.end(), [](const Action& action) {
    return action.kind == Action::Kind::kBackwardWeights;
  });
  Stage::ActivationBytes most;
  for (const std::unique_ptr<Stage>& stage : stages_) {
    const Stage::ActivationBytes one = stage->activation_bytes(longest, splits);
    most.kept = std::max(most.kept, one.kept);
    most.working = std::max(most.working, one.working);
    most.message = std::max(most.message, one.message);
  }
  // One micro-batch is worked on, the others wait. Of messages, two that were sent may not have
  // been taken yet, and one comes before it is needed.
  constexpr std::int64_t kMessages = 3;
  const int in_flight = facts.value().peak_in_flight[static_cast<std::size_t>(mesh_.at().pp)];
  return most.kept * (in_flight - 1) + most.working +
         (mesh_.shape().pp > 1 ? kMessages * most.message : 0);
}

Result<std::uint64_t> TrainerOfMesh::check_replicas() {
  Result<std::uint64_t> hash = store_->hash();
  if (!hash) return hash.error();
  // Of all replicas: as two exact halves, summed and compared.
  const int dp = mesh_.shape().dp;
  std::vector<double> halves(static_cast<std::size_t>(2 * dp));
  halves[static_cast<std::size_t>(2 * mesh_.at().dp)] = static_cast<double>(hash.value() >> 32);
  halves[static_cast<std::size_t>(2 * mesh_.at().dp + 1)] =
      static_cast<double>(hash.value() & 0xffffffffu);
  if (Status s = sum_over(mesh_.dp(), compute_, halves); !s) return s.error();
  Status mine;
  for (int d = 1; d < dp && mine; ++d) {
    const auto i = static_cast<std::size_t>(2 * d);
    if (halves[i] == halves[0] && halves[i + 1] == halves[1]) continue;
    mine = Error{TR_MISMATCH, "replicas 0 and " + std::to_string(d) +
                                  " have different parameters (pipeline stage " +
                                  std::to_string(mesh_.at().pp) + ", shard " +
                                  std::to_string(mesh_.at().tp) + ")"};
  }
  if (Status s = agree(mesh_.world(), compute_, mine); !s) return s.error();
  // Of all stages and shards, in an order-free way: replica 0's, each mixed with its place.
  const std::uint64_t placed = mix(hash.value() + static_cast<std::uint64_t>(mesh_.at().pp) * 1024 +
                                   static_cast<std::uint64_t>(mesh_.at().tp));
  double sums[4] = {};
  for (int i = 0; i < 4; ++i) sums[i] = static_cast<double>((placed >> (16 * i)) & 0xffffu);
  if (Status s = sum_over(mesh_.model(), compute_, sums); !s) return s.error();
  std::uint64_t all = 0;
  for (const double sum : sums) all = mix(all ^ static_cast<std::uint64_t>(sum));
  return all;
}

}  // namespace tr::par
