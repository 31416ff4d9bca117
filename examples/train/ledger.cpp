#include "train/ledger.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "treering/parallel/schedule.hpp"

#include "must.hpp"

namespace train {
namespace {

using example::must;
using namespace tr::par;

constexpr std::array<const char*, 6> kNames = {"dp", "tp", "pp", "pp back", "model", "world"};
constexpr std::size_t kNumbers = 3;  // of a Pipelined

double mb(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// Every rank's `mine`, which are equally many, one after another.
std::vector<double> gather(Comm& world, Compute& compute, const std::vector<double>& mine) {
  const auto count = static_cast<std::int64_t>(mine.size());
  std::vector<double> all(mine.size() * static_cast<std::size_t>(world.size()));
  if (count == 0) return all;
  const auto make = [&](std::int64_t elements) {
    return must(Tensor::make(compute.memory(), Use::kBuffers, 1, elements, DType::kFloat64));
  };
  const Tensor from = make(count), to = make(count * world.size());
  must(compute.upload(mine.data(), from.view()));
  must(world.wait(must(world.all_gather(from.view(), to.view()))));
  must(compute.download(to.view(), all.data()));
  must(compute.synchronize());
  return all;
}

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::array<Comm*, Ledger::kGroups> Ledger::groups() const {
  Mesh& mesh = trainer_.mesh();
  return {&mesh.dp(),          &mesh.tp(),    &mesh.pp_forward(),
          &mesh.pp_backward(), &mesh.model(), &mesh.world()};
}

void Ledger::begin_step() {
  trainer_.mesh().reset_traffic();
  first_interval_ = trace_.intervals().size();
  began_us_ = trace_.now_us();
}

void Ledger::end_step(const StepReport& step) {
  peak_bytes_ = std::max(peak_bytes_, compute_.memory().peak_bytes());
  if (step.skipped) {
    ++skipped_;
    return;
  }
  ++steps_;
  ++steps_with_[step.micro_batches];
  const auto comms = groups();
  for (std::size_t i = 0; i < comms.size(); ++i) sent_[i] += comms[i]->traffic();
  if (schedule_.actions.empty()) schedule_ = trainer_.schedule();
  if (schedule_.ranks == 1 || step.micro_batches != schedule_.micro_batches) return;
  Trace mine(trace_.rank());
  Pipelined times{};
  for (std::size_t i = first_interval_; i < trace_.intervals().size(); ++i) {
    const Interval& interval = trace_.intervals()[i];
    mine.add(interval);
    if (interval.row != Row::kCompute) continue;
    const double begin = interval.begin_us - began_us_, end = interval.end_us - began_us_;
    times.begin_us = times.end_us == 0.0 ? begin : std::min(times.begin_us, begin);
    times.end_us = std::max(times.end_us, end);
  }
  times.busy_us = computed_us(mine);
  pipelined_.push_back(times);
}

// What a step sends over dp. Each micro-batch acquires all layers forward and backward, once more
// to compute again what was not kept, and once more for weights of their own.
Traffic Ledger::formula(int micro_batches) const {
  const MeshShape& shape = trainer_.mesh().shape();
  const Coordinates& at = trainer_.mesh().at();
  int acquires = trainer_.recompute() == Recompute::kFull ? 3 : 2;
  for (const Action& action : schedule_.actions[static_cast<std::size_t>(at.pp)]) {
    if (action.kind != Action::Kind::kBackwardWeights) continue;
    ++acquires;
    break;
  }
  return must(predict_traffic(trainer_.own_parameters(), at.dp, shape.dp, shape.tp,
                              trainer_.store_options(), acquires * micro_batches));
}

void Ledger::report_bytes(Report& report) const {
  std::printf("rank 0 sent, per step (of %" PRId64 " here", steps_);
  if (skipped_ > 0) std::printf("; %" PRId64 " skipped ones are left out", skipped_);
  std::printf("):\n");
  const auto steps = std::max<std::int64_t>(1, steps_);
  std::string json;
  // Scores, norms and what must be agreed on go over the world and the model's ranks.
  for (std::size_t g = 0; g < sent_.size(); ++g) {
    for (int i = 0; i < kNumOperations; ++i) {
      const auto operation = static_cast<Operation>(i);
      const Traffic::Row& row = sent_[g][operation];
      if (row.bytes == 0) continue;
      std::printf("  %-8s %-15s %8.2f calls %14" PRId64 " bytes %8.2f messages\n", kNames[g],
                  name_of(operation), static_cast<double>(row.calls) / static_cast<double>(steps),
                  row.bytes / steps,
                  static_cast<double>(row.messages) / static_cast<double>(steps));
      json += std::string(json.empty() ? "" : ",") + '"' + kNames[g] + ' ' + name_of(operation) +
              "\":" + std::to_string(row.bytes / steps);
    }
  }
  report.json(R"({"sent_per_step":{)" + json + "}}");
  if (trainer_.store_options().hook != nullptr || steps_ == 0) return;
  std::int64_t predicted = 0;
  for (const auto& [micro_batches, count] : steps_with_) {
    predicted += formula(micro_batches).bytes() * count;
  }
  std::printf("  dp by the formula: %" PRId64 " bytes; counted: %" PRId64 "\n", predicted / steps,
              sent_[0].bytes() / steps);
}

void Ledger::report_memory(const Options& options, Report& report) const {
  const MeshShape& shape = trainer_.mesh().shape();
  const StoreMemory predicted =
      must(predict_memory(trainer_.own_parameters(), shape.dp, shape.tp, trainer_.store_options(),
                          !steps_with_.empty() && steps_with_.rbegin()->first > 1));
  const std::int64_t activations = must(trainer_.activation_bytes(options.batch));
  const std::int64_t most = predicted.peak() + activations;
  std::printf(
      "memory by the formula, MB: parameters %.3f, gradients %.3f, optimizer %.3f, for a "
      "while %.3f, activations %.3f: at most %.3f\n",
      mb(predicted.parameters), mb(predicted.gradients), mb(predicted.optimizer),
      mb(predicted.transient), mb(activations), mb(most));
  std::printf("memory, MB:");
  for (int i = 0; i < kNumUses; ++i) {
    const auto use = static_cast<Use>(i);
    std::printf(" %s %.3f,", name_of(use), mb(compute_.memory().bytes(use)));
  }
  std::printf(" at most %.3f in a step\n", mb(peak_bytes_));
  report.json(R"({"step_memory_mb":{"predicted":)" + number("%.6f", mb(most)) + R"(,"measured":)" +
              number("%.6f", mb(peak_bytes_)) + "}}");
}

// The share of time, from a replica's first computation in a step to its last, in which its ranks
// computed nothing. Ranks' clocks are compared from the beginning of each step on.
double Ledger::measured_bubble(const std::vector<double>& all) const {
  const MeshShape& shape = trainer_.mesh().shape();
  const auto of_model = static_cast<std::size_t>(shape.pp * shape.tp);
  const std::size_t per_rank = kNumbers * pipelined_.size();
  double busy = 0.0, time = 0.0;
  for (std::size_t replica = 0; replica < static_cast<std::size_t>(shape.dp); ++replica) {
    for (std::size_t step = 0; step < pipelined_.size(); ++step) {
      double begin = 0.0, end = 0.0;
      for (std::size_t i = 0; i < of_model; ++i) {
        const double* mine = &all[(replica * of_model + i) * per_rank + step * kNumbers];
        begin = i == 0 ? mine[0] : std::min(begin, mine[0]);
        end = std::max(end, mine[1]);
        busy += mine[2];
      }
      time += (end - begin) * static_cast<double>(of_model);
    }
  }
  return time > 0.0 ? 1.0 - busy / time : 0.0;
}

void Ledger::report_bubble(const std::vector<double>& all, Report& report) const {
  double expected = 0.0;
  if (schedule_.name == "csv") {
    // No formula knows a schedule of one's own: it is played, with a backward pass twice as long.
    expected = must(simulate(schedule_, StageTimes{})).bubble();
    std::printf("bubble of the file if I and W take as long as F: %.1f %% (%d micro-batches)\n",
                100 * expected, schedule_.micro_batches);
  } else {
    expected = bubble_formula(schedule_.name, schedule_.ranks, schedule_.micro_batches,
                              schedule_.stages_per_rank);
    std::printf("bubble by the formula: %.1f %% (%s, %d micro-batches)\n", 100 * expected,
                schedule_.name.c_str(), schedule_.micro_batches);
  }
  std::string json = R"({"bubble":{"expected":)" + number("%.6f", expected);
  if (!compute_.is_dry()) {
    const double measured = measured_bubble(all);
    std::printf("bubble measured: %.1f %% (%zu steps)\n", 100 * measured, pipelined_.size());
    json += R"(,"measured":)" + number("%.6f", measured);
  }
  report.json(json + "}}");
}

void Ledger::report(const Options& options, Report& report) {
  std::vector<double> mine, all;
  for (const Pipelined& p : pipelined_) {
    mine.insert(mine.end(), {p.begin_us, p.end_us, p.busy_us});
  }
  Comm& world = trainer_.mesh().world();
  if (!compute_.is_dry()) all = gather(world, compute_, mine);
  if (world.rank() != 0) return;
  report_bytes(report);
  if (!pipelined_.empty()) report_bubble(all, report);
  report_memory(options, report);
}

}  // namespace train
