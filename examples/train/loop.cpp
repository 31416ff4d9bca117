#include "train/loop.hpp"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <optional>

#include "treering/parallel/trace.hpp"

#include "must.hpp"
#include "train/comm_log.hpp"
#include "train/faults.hpp"
#include "train/ledger.hpp"
#include "train/measure.hpp"
#include "train/report.hpp"
#include "train/task.hpp"

namespace train {
namespace {

using example::must;
using namespace tr::par;
using SteadyClock = std::chrono::steady_clock;
using Rows = std::vector<std::int64_t>;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

class Loop {
 public:
  Loop(const Options& options, std::unique_ptr<Comm> world, std::unique_ptr<Compute> compute);
  int run();

 private:
  bool is_first() const { return rank_ == 0; }
  void announce();
  Rows rows_of(std::int64_t position);
  void step(std::int64_t position);
  std::int64_t tried_steps() const { return trainer_->steps() + trainer_->skipped_steps(); }
  void log(int epoch, bool with_test);
  double test_accuracy();
  int end();

  const Options& options_;
  int rank_, ranks_;
  Time time_;
  std::unique_ptr<Compute> real_;
  Compute& compute_;
  Task task_;
  Report report_;
  std::unique_ptr<GradientHook> hook_;
  std::unique_ptr<Trainer> trainer_;
  Ledger ledger_;
  CallTable calls_;  // with --comm-log
  std::unique_ptr<Compute> serial_compute_;
  std::unique_ptr<Trainer> serial_;  // on rank 0, with --verify
  FaultyData data_;
  std::int64_t rows_per_epoch_ = 0;
  Rows order_;  // of the rows in epoch order_epoch_
  int order_epoch_ = -1;
  int total_steps_ = 0;
  double peak_gflops_ = 0.0;
  double last_test_accuracy_ = 0.0, worst_difference_ = 0.0;
  // Since the last line.
  Score score_;
  int steps_ = 0, skipped_ = 0;
  double norm_ = 0.0, optimizer_s_ = 0.0, scale_ = 1.0;
  SteadyClock::time_point since_;
  double since_us_ = 0.0;
};

TrainerOptions with_mesh(const Options& options, int ranks, GradientHook* hook) {
  TrainerOptions t = options.trainer;
  t.hook = hook;
  if (t.mesh.dp == 0) t.mesh.dp = std::max(1, ranks / (t.mesh.pp * t.mesh.tp));
  return t;
}

tr::Status of_flag(const char* flag, const tr::Status& status) {
  if (status) return {};
  return tr::Error{status.error().code, std::string(flag) + ": " + status.error().message};
}

// What is written at the end, too, must be writable now.
Report open_outputs(const Options& options, bool is_first) {
  if (!options.save.empty()) must(of_flag("--save", check_checkpoint_folder(options.save)));
  if (is_first && !options.trace.empty()) must(of_flag("--trace", can_write(options.trace)));
  return must(Report::open(is_first ? options.metrics : ""));
}

Loop::Loop(const Options& options, std::unique_ptr<Comm> world, std::unique_ptr<Compute> compute)
    : options_(options),
      rank_(world->rank()),
      ranks_(world->size()),
      time_(rank_),
      real_(std::move(compute)),
      // The world first: it says whether time is simulated.
      compute_((world = time_.wrap(std::move(world), options), time_.wrap(*real_, options))),
      task_(must(make_task(options))),
      report_(open_outputs(options, is_first())),
      hook_(options.compress == "bf16"   ? make_bf16_hook()
            : options.compress == "int8" ? make_int8_hook()
                                         : nullptr),
      trainer_(must(Trainer::create(std::move(world), compute_, task_.model,
                                    with_mesh(options, ranks_, hook_.get())))),
      ledger_(*trainer_, *real_, time_.trace),
      data_(*task_.data.train, must(parse_fault(options.inject)), rank_) {
  rows_per_epoch_ = task_.data.train->rows();
  // In sequence parallelism a few rows may be left over that the ranks cannot share.
  if (options.sequence_parallel) rows_per_epoch_ -= rows_per_epoch_ % options.trainer.mesh.tp;
  const std::int64_t per_epoch = (rows_per_epoch_ + options.batch - 1) / options.batch;
  std::int64_t total = per_epoch * task_.epochs;
  if (options.steps > 0) total = std::min<std::int64_t>(total, options.steps);
  if (total > std::numeric_limits<int>::max()) {
    must(tr::Status(
        tr::Error{TR_INVALID_ARGUMENT, "--epochs " + std::to_string(task_.epochs) + " of " +
                                           std::to_string(per_epoch) + " steps each: more than " +
                                           std::to_string(std::numeric_limits<int>::max()) +
                                           " steps; give fewer, a larger --batch or --steps"}));
  }
  total_steps_ = static_cast<int>(total);
  must(check_fault(must(parse_fault(options.inject)), options.inject, ranks_, total - 1));
  if (!options.verify || !is_first()) return;
  // Alone, the same pieces in the same order: sums have the same bits then.
  TrainerOptions serial = options.trainer;
  const MeshShape& mesh = trainer_->mesh().shape();
  serial.mesh = {1, 1, 1};
  serial.schedule = "1f1b";
  serial.schedule_csv.clear();
  serial.stages_per_rank = 1;
  serial.stage_layers.clear();
  serial.zero = 0;
  serial.hook = nullptr;
  // Each replica's share is a piece; with micro-batches too, sums have another order.
  if (mesh.dp > 1) {
    serial.micro_batches = mesh.dp;
    serial.micro_batch = 0;
  }
  serial_compute_ = compute_for(options);
  serial_ = must(Trainer::create(std::move(must(make_threads_comms(1))[0]), *serial_compute_,
                                 task_.model, serial));
}

void Loop::announce() {
  if (options_.backend != "count") {
    peak_gflops_ = options_.peak_gflops > 0 ? options_.peak_gflops
                   : time_.is_simulated()   ? kSimulatedGflops
                                            : measured_gflops(*real_);
  }
  if (!is_first()) return;
  const MeshShape& mesh = trainer_->mesh().shape();
  std::printf("%d rank%s (%s): dp %d x pp %d x tp %d; %s: %" PRId64 " rows; net %s\n", ranks_,
              ranks_ == 1 ? "" : "s", options_.backend.c_str(), mesh.dp, mesh.pp, mesh.tp,
              options_.data.c_str(), rows_per_epoch_, task_.model.to_string().c_str());
  const std::int64_t share = share_of(options_.batch, 0, mesh.dp).count;
  const std::int64_t micro =
      options_.trainer.micro_batch > 0 ? options_.trainer.micro_batch : share;
  std::printf("batch %d = %d replica%s x %" PRId64 " micro-batches of up to %" PRId64
              " rows; zero %d; %s; %s, gemm %s, %.1f GF/s a rank%s; seed %" PRIu64 "\n",
              options_.batch, mesh.dp, mesh.dp == 1 ? "" : "s", (share + micro - 1) / micro,
              std::min(micro, share), options_.trainer.zero, options_.dtype.c_str(),
              options_.device.c_str(), compute_.name(), peak_gflops_,
              time_.is_simulated() ? ", simulated" : "", options_.trainer.seed);
  const std::string whole = layers_not_split(task_.model, mesh.tp);
  if (!whole.empty()) std::printf("%s\n", whole.c_str());
  std::printf("gradient buckets, MiB:");
  for (const BucketInfo& b : trainer_->parameters().buckets()) {
    const double bytes = static_cast<double>(b.elements) *
                         static_cast<double>(size_of(accumulator_of(options_.trainer.type)));
    std::printf(" %.2f", bytes / (1 << 20));
  }
  std::printf("; overlap %s\n", options_.overlap.c_str());
}

// The batch that begins `position` rows after the first: an epoch's last one may be short.
Rows Loop::rows_of(std::int64_t position) {
  const int epoch = static_cast<int>(position / rows_per_epoch_);
  const std::int64_t at = position % rows_per_epoch_;
  if (epoch != order_epoch_) {
    order_ = shuffled_rows(task_.data.train->rows(), options_.trainer.seed, epoch);
    order_epoch_ = epoch;
  }
  const std::int64_t count = std::min<std::int64_t>(options_.batch, rows_per_epoch_ - at);
  return {order_.begin() + at, order_.begin() + at + count};
}

void Loop::step(std::int64_t position) {
  const Rows rows = rows_of(position);
  data_.begin_step(static_cast<int>(tried_steps()));
  ledger_.begin_step();
  const StepReport report = must(trainer_->step(data_, rows));
  ledger_.end_step(report);
  ++steps_;
  skipped_ += report.skipped ? 1 : 0;
  score_.loss_sum += report.score.loss_sum;
  score_.correct += report.score.correct;
  score_.rows += report.score.rows;
  norm_ = report.gradient_norm;
  const bool is_finite = std::isfinite(report.score.loss_sum) && std::isfinite(norm_);
  if (!is_finite && !options_.trainer.scaler.is_on() && !compute_.is_dry()) {
    must(tr::Status(
        tr::Error{TR_INVALID_ARGUMENT,
                  "step " + std::to_string(trainer_->steps()) +
                      ": the loss or its gradient is not finite; a smaller --lr may help, "
                      "and --nan-check names the rank and layer"}));
  }
  scale_ = report.loss_scale;
  optimizer_s_ += report.optimizer_s;
  if (serial_) {
    const StepReport alone = must(serial_->step(*task_.data.train, rows));
    const double difference =
        std::abs(alone.score.loss_sum - report.score.loss_sum) / std::abs(alone.score.loss_sum);
    // A NaN stays.
    if (!(difference <= worst_difference_)) worst_difference_ = difference;
    if (std::isnan(difference)) worst_difference_ = HUGE_VAL;
  }
}

double Loop::test_accuracy() {
  Score total;
  const std::int64_t rows = task_.data.test->rows();
  const std::int64_t most = std::max<std::int64_t>(1024, options_.batch);
  for (std::int64_t at = 0; at < rows; at += most) {
    Rows part(static_cast<std::size_t>(std::min(most, rows - at)));
    std::iota(part.begin(), part.end(), at);
    const Score score = must(trainer_->evaluate(*task_.data.test, part));
    total.loss_sum += score.loss_sum;
    total.correct += score.correct;
    total.rows += score.rows;
  }
  if (is_first() && options_.data == "bytes") {
    std::printf("test: %.4f bits per byte\n",
                total.loss_sum / static_cast<double>(total.rows) / std::log(2.0));
  }
  ledger_.skip_peak();
  return static_cast<double>(total.correct) / static_cast<double>(total.rows);
}

void Loop::log(int epoch, bool with_test) {
  const double seconds =
      time_.is_simulated() ? (time_.trace.now_us() - since_us_) / 1e6 : seconds_since(since_);
  Progress p;
  p.step = static_cast<int>(trainer_->steps());
  p.total_steps = total_steps_;
  p.epoch = epoch;
  p.epochs = task_.epochs;
  p.steps = steps_;
  add_times(time_.trace, steps_, p);
  const auto rows = static_cast<double>(score_.rows);
  const bool has_labels = task_.model.loss() == Loss::kCrossEntropy;
  p.loss =
      score_.loss_sum /
      (has_labels ? rows : rows * static_cast<double>(task_.model.layers().back().output_width()));
  if (has_labels) p.accuracy = static_cast<double>(score_.correct) / rows;
  p.gradient_norm = norm_;
  p.lr = options_.lr;
  p.loss_scale = scale_;
  p.skipped = skipped_;
  p.step_ms = 1e3 * seconds / steps_;
  p.optimizer_ms = time_.is_simulated() ? 0.0 : 1e3 * optimizer_s_ / steps_;
  p.samples_per_s = rows / seconds;
  p.gflops = step_flops(task_.model, rows) / seconds / 1e9;
  p.mfu = p.gflops / (ranks_ * peak_gflops_);
  p.memory_mb = static_cast<double>(real_->memory().bytes()) / 1e6;
  p.peak_memory_mb = static_cast<double>(ledger_.peak_bytes()) / 1e6;
  if (with_test && task_.data.test) p.test_accuracy = last_test_accuracy_ = test_accuracy();
  if (is_first() && !compute_.is_dry()) report_.line(p);
  score_ = {};
  steps_ = skipped_ = 0;
  optimizer_s_ = 0.0;
  if (options_.trace.empty()) {
    if (options_.comm_log) calls_.add(time_.trace);
    time_.trace.clear();
  }
  since_ = SteadyClock::now();
  since_us_ = time_.trace.now_us();
}

int Loop::end() {
  if (options_.comm_log && !options_.trace.empty()) calls_.add(time_.trace);
  ledger_.report(options_, report_);
  if (is_first()) {
    report_.advise();
    if (options_.comm_log) std::fputs(calls_.to_string().c_str(), stdout);
  }
  if (!options_.trace.empty()) {
    const std::vector<Trace> traces = must(gather_traces(trainer_->mesh().world(), time_.trace));
    if (is_first()) {
      std::printf("all ranks together computed nothing in %.1f %% of the time\n",
                  100 * idle_share(traces));
      must(write_chrome_trace(options_.trace, traces));
    }
  }
  if (options_.backend == "count") return 0;
  const std::uint64_t hash = must(trainer_->check_replicas());
  if (is_first()) {
    std::printf("%" PRId64 " steps; replicas are equal, hash %016" PRIx64 "\n", trainer_->steps(),
                hash);
    char text[96];
    std::snprintf(text, sizeof text,
                  R"({"steps":%)" PRId64 R"(,"parameters_hash":"%016)" PRIx64 "\"}",
                  trainer_->steps(), hash);
    report_.json(text);
  }
  if (serial_) {
    // Roundings grow while parameters move: a ReLU near 0 may decide otherwise.
    const bool is_short = size_of(options_.trainer.type) < 4 || hook_ != nullptr;
    const double limit = is_short ? 5e-2 : trainer_->steps() <= 100 ? 2e-5 : 1e-3;
    if (worst_difference_ == 0.0) {
      std::printf("against a serial run: every loss is equal bit for bit\n");
    } else {
      std::printf("against a serial run: losses differ by at most %.3g millionths (allowed: %g)\n",
                  worst_difference_ * 1e6, limit * 1e6);
    }
    if (!(worst_difference_ <= limit)) {
      std::fprintf(stderr, "--verify: the losses are not those of a serial run\n");
      return 4;
    }
  }
  if (task_.data.test && last_test_accuracy_ < options_.min_accuracy) {
    if (is_first()) {
      std::fprintf(stderr, "test accuracy %.4f is below --min-accuracy %.4f\n", last_test_accuracy_,
                   options_.min_accuracy);
    }
    return 3;
  }
  return 0;
}

int Loop::run() {
  announce();
  if (!options_.load.empty()) {
    must(trainer_->load(options_.load));
    if (serial_) must(serial_->load(options_.load));
    if (is_first()) std::printf("goes on after step %" PRId64 "\n", trainer_->steps());
  }
  ledger_.skip_peak();
  ActionTrace actions(time_.trace);
  if (!time_.is_simulated()) trainer_->set_observer(&actions);
  time_.trace.clear();
  since_ = SteadyClock::now();
  since_us_ = time_.trace.now_us();
  std::int64_t position = trainer_->position();
  std::int64_t done = tried_steps();
  while (done < total_steps_) {
    if (data_.skips(static_cast<int>(done))) {
      ++done;  // as if an `if` had been true on this rank alone
      continue;
    }
    step(position);
    position = trainer_->position();
    ++done;  // those whose gradients overflowed, too
    const bool ends_epoch = position % rows_per_epoch_ == 0;
    const bool is_last = done == total_steps_;
    const int epoch = static_cast<int>((position + rows_per_epoch_ - 1) / rows_per_epoch_);
    if (ends_epoch || is_last || (options_.log_every > 0 && done % options_.log_every == 0)) {
      log(epoch, ends_epoch || is_last);
    } else if (is_first()) {
      report_.bar(static_cast<int>(done), total_steps_);
    }
    if (options_.check_sync > 0 && done % options_.check_sync == 0 && options_.backend != "count") {
      must(trainer_->check_replicas());
    }
    const bool saves = options_.save_every > 0 && done % options_.save_every == 0;
    if (!options_.save.empty() && (saves || is_last)) must(trainer_->save(options_.save));
  }
  return end();
}

}  // namespace

int train_on_rank(const Options& options, std::unique_ptr<Comm> world,
                  std::unique_ptr<Compute> compute) {
  return Loop(options, std::move(world), std::move(compute)).run();
}

}  // namespace train
