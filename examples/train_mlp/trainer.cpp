#include "train_mlp/trainer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "must.hpp"
#include "train_mlp/clock.hpp"
#include "train_mlp/counter_rng.hpp"
#include "train_mlp/data.hpp"
#include "train_mlp/mlp.hpp"
#include "train_mlp/optimizer.hpp"
#include "train_mlp/reducer.hpp"
#include "train_mlp/replay.hpp"
#include "train_mlp/report.hpp"

namespace train {
namespace {

using example::must;

struct Task {
  Dataset data;
  Net net;
  int epochs;
};

Task make_task(const Options& options) {
  const auto or_default = [&](const char* path) {
    return options.data_dir.empty() ? std::string(path) : options.data_dir;
  };
  Task task{};
  if (options.data == "fashion") {
    task.data = must(load_fashion(or_default("/usr/share/datasets/fashion-mnist")));
    task.net = make_classifier(std::array{784, 256, 128, 10});
    task.epochs = 10;
  } else if (options.data == "digits") {
    task.data = must(load_digits(or_default(TRAIN_DATA_DIR) + "/digits.csv.gz"));
    task.net = make_classifier(std::array{64, 128, 128, 10});
    task.epochs = 50;
  } else {
    task.data = make_noise(options.batch, 1024, options.seed);
    task.net = make_square_net(4, 1024);
    task.epochs = options.steps > 0 ? options.steps : 20;
  }
  if (options.epochs > 0) task.epochs = options.epochs;
  return task;
}

// FNV-1a over the words of the parameters.
std::uint64_t hash_of(std::span<const float> parameters) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const float p : parameters) hash = (hash ^ std::bit_cast<std::uint32_t>(p)) * 0x100000001b3u;
  return hash;
}

class Trainer {
 public:
  Trainer(const Options& options, compute::Backend& backend, tr::Communicator& comm)
      : options_(options),
        backend_(backend),
        comm_(comm),
        task_(make_task(options)),
        parameters_(must(compute::Array<float>::make(*backend.device, net().parameters()))),
        max_rows_(options.batch / comm.size() + 1),
        mlp_(net(), backend, max_rows_),
        adam_{.lr = options.lr},
        optimizer_(net().parameters(), backend, adam_),
        reducer_(must(Reducer::create(comm, *backend.device, net(), reducer_options(options)))),
        report_(must(Report::open(is_first() ? options.metrics : ""))) {
    std::vector<float> initial(net().parameters());
    initialize(net(), options.seed, initial);
    must(parameters_.upload(initial));
    if (!options.verify) return;
    must(comm.set_option(TR_OPT_ORDERED, 1));
    if (is_first()) {
      replay_.emplace(net(), backend, adam_, comm.size(), options.batch, initial);
    }
  }

  int run();

 private:
  static ReducerOptions reducer_options(const Options& options) {
    const auto bytes = [](double mib) { return static_cast<std::size_t>(mib * (1 << 20)); };
    return {bytes(options.bucket_mb), bytes(options.first_bucket_mb), options.overlap};
  }
  const Net& net() const { return task_.net; }
  bool is_first() const { return comm_.rank() == 0; }
  // What a ring or a direct all-reduce sends, and no algorithm sends less.
  std::uint64_t sent_bytes() const {
    const std::uint64_t n = comm_.size(), bytes = sizeof(float) * net().parameters();
    return 2 * (n - 1) * bytes / n;
  }
  // The global D: gradients are those of (sum of the losses) / D.
  double normalizer(int rows) const {
    return net().loss == Loss::kMeanSquare ? static_cast<double>(rows) * net().outputs() : rows;
  }

  void announce();
  void step(std::span<const std::uint32_t> order);
  void verify(std::span<const std::uint32_t> order, double divisor);
  void check_sync();
  void log(const char* unit, int number, int total, bool with_test);
  std::optional<double> test_accuracy();

  const Options& options_;
  compute::Backend& backend_;
  tr::Communicator& comm_;
  Task task_;
  compute::Array<float> parameters_;
  int max_rows_;  // of a share
  Mlp mlp_;
  AdamWOptions adam_;
  AdamW optimizer_;
  Reducer reducer_;
  Report report_;
  std::optional<SerialReplay> replay_;  // on rank 0, with --verify

  Table mine_;  // this rank's rows of the batch
  int steps_ = 0;
  double alone_seconds_ = 0.0;
  double last_test_accuracy_ = 0.0;
  // Since the last log line; scores are this rank's.
  Score score_;
  int logged_steps_ = 0, rows_ = 0;
  double denominator_ = 0.0, compute_seconds_ = 0.0, optimizer_seconds_ = 0.0;
};

void Trainer::announce() {
  alone_seconds_ = comm_.size() > 1 ? must(reducer_.seconds_alone(5)) : 0.0;
  if (!is_first()) return;
  std::printf("%d rank%s, %s: %d + %d rows, batch %d; net %s\n", comm_.size(),
              comm_.size() == 1 ? "" : "s", options_.data.c_str(), task_.data.train.rows(),
              task_.data.test.rows(), options_.batch, net().to_string().c_str());
  std::printf("on %s, gemm %s; seed %" PRIu64 "; %zu gradient bucket(s), MiB:",
              backend_.device->name().c_str(), backend_.gemm->name(), options_.seed,
              reducer_.buckets().size());
  for (const Bucket& b : reducer_.buckets()) {
    std::printf(" %.2f", sizeof(float) * static_cast<double>(b.end - b.begin) / (1 << 20));
  }
  std::printf("; overlap %s\n", options_.overlap ? "on" : "off");
  std::printf("each rank sends 2 (n-1)/n x %zu = %" PRIu64 " bytes per step\n",
              sizeof(float) * net().parameters(), sent_bytes());
}

// `order`: the rows of the global batch.
void Trainer::step(std::span<const std::uint32_t> order) {
  const int rows = static_cast<int>(order.size());
  const Range range = share(rows, comm_.rank(), comm_.size());
  const double divisor = normalizer(rows);
  Stopwatch watch;
  gather_rows(task_.data.train, order.subspan(range.first, range.count()), mine_);
  mlp_.forward(parameters_.span(), mine_.x, range.count());
  mlp_.loss(mine_.y, divisor);
  mlp_.backward(parameters_.span(), reducer_.gradients(),
                [&](int layer) { reducer_.layer_done(layer); });
  const Score score = mlp_.score();
  compute_seconds_ += watch.lap();
  must(reducer_.finish());
  (void)watch.lap();
  optimizer_.step(parameters_.span(), reducer_.gradients());
  must(backend_.device->synchronize());
  optimizer_seconds_ += watch.lap();

  ++steps_, ++logged_steps_;
  score_.loss_sum += score.loss_sum;
  score_.correct += score.correct;
  rows_ += rows;
  denominator_ += divisor;
  if (options_.verify) verify(order, divisor);
  if (options_.check_sync > 0 && steps_ % options_.check_sync == 0) check_sync();
}

// All ranks learn the verdict, so that all end alike.
void Trainer::verify(std::span<const std::uint32_t> order, double divisor) {
  std::array<std::int32_t, 1> holds{1};
  if (replay_) {
    Table batch;
    gather_rows(task_.data.train, order, batch);
    std::vector<float> gradients(net().parameters());
    must(backend_.device->download(gradients.data(), reducer_.gradients().data(),
                                   gradients.size() * sizeof gradients[0]));
    const auto parameters = must(parameters_.download());
    if (auto s = replay_->step(batch, divisor, gradients, parameters); !s) {
      std::fprintf(stderr, "NOT equal to serial: %s\n", s.error().message.c_str());
      holds[0] = 0;
    }
  }
  must(comm_.broadcast(holds, 0));
  if (holds[0] == 0) std::exit(1);
}

void Trainer::check_sync() {
  const std::array mine{hash_of(must(parameters_.download()))};
  std::vector<std::uint64_t> all(comm_.size());
  must(comm_.all_gather(mine, all));
  for (int q = 1; q < comm_.size(); ++q) {
    if (all[q] == all[0]) continue;
    if (is_first()) {
      std::fprintf(stderr, "step %d: the parameters of rank %d differ from rank 0's\n", steps_, q);
    }
    std::exit(1);
  }
}

std::optional<double> Trainer::test_accuracy() {
  const Table& test = task_.data.test;
  if (test.rows() == 0) return {};
  const Range range = share(test.rows(), comm_.rank(), comm_.size());
  std::array<std::int64_t, 1> correct{0};
  for (int first = range.first; first < range.last; first += max_rows_) {
    const int rows = std::min(max_rows_, range.last - first);
    const std::size_t at = static_cast<std::size_t>(first) * test.features;
    mlp_.forward(parameters_.span(), std::span(test.x).subspan(at), rows);
    mlp_.loss(std::span(test.y).subspan(first), 1.0);
    correct[0] += mlp_.score().correct;
  }
  must(comm_.all_reduce(correct, tr::kSum));
  return static_cast<double>(correct[0]) / test.rows();
}

void Trainer::log(const char* unit, int number, int total, bool with_test) {
  const double exposed_seconds = reducer_.exposed_seconds();
  std::array<double, 2> sums{score_.loss_sum, static_cast<double>(score_.correct)};
  must(comm_.all_reduce(sums, tr::kSum));
  Progress p;
  p.unit = unit;
  p.number = number;
  p.total = total;
  p.step = steps_;
  if (with_test) p.test_accuracy = test_accuracy();
  last_test_accuracy_ = p.test_accuracy.value_or(last_test_accuracy_);
  p.loss = sums[0] / denominator_;
  if (task_.data.train.classes > 0) p.train_accuracy = sums[1] / rows_;
  const double seconds = compute_seconds_ + exposed_seconds + optimizer_seconds_;
  const double ms_per_step = 1e3 / logged_steps_;
  p.samples_per_s = rows_ / seconds;
  p.step_ms = seconds * ms_per_step;
  p.compute_ms = compute_seconds_ * ms_per_step;
  p.exposed_ms = exposed_seconds * ms_per_step;
  p.optimizer_ms = optimizer_seconds_ * ms_per_step;
  p.alone_ms = alone_seconds_ * 1e3;
  if (is_first()) report_.progress(p);
  if (!std::isfinite(p.loss)) {
    if (is_first()) std::fprintf(stderr, "the loss is not a finite number any more\n");
    std::exit(1);
  }
  score_ = {};
  logged_steps_ = rows_ = 0;
  denominator_ = compute_seconds_ = optimizer_seconds_ = 0.0;
  reducer_.reset_counters();
}

int Trainer::run() {
  announce();
  const int rows = task_.data.train.rows();
  const int per_epoch = (rows + options_.batch - 1) / options_.batch;
  const int planned = task_.epochs * per_epoch;
  const int total = options_.steps > 0 ? std::min(options_.steps, planned) : planned;
  const char* unit = per_epoch == 1 ? "step" : "epoch";
  for (int epoch = 0; epoch < task_.epochs && steps_ < total; ++epoch) {
    const auto order = permutation(rows, options_.seed, kShuffleStream + epoch);
    for (int first = 0; first < rows && steps_ < total; first += options_.batch) {
      step(std::span(order).subspan(first, std::min(options_.batch, rows - first)));
      if (options_.log_every > 0 && steps_ % options_.log_every == 0 && steps_ < total) {
        log("step", steps_, total, false);
      }
    }
    if (logged_steps_ > 0) log(unit, epoch + 1, task_.epochs, true);
  }
  check_sync();
  if (is_first()) report_.end(hash_of(must(parameters_.download())), sent_bytes(), steps_);
  if (replay_) {
    std::printf("equal to serial: bit for bit over %d steps; whole-batch gradient within %.1e%s\n",
                replay_->steps(), replay_->worst_error(),
                replay_->error_is_bounded() ? "" : " (unbounded with this GEMM, see replay.hpp)");
  }
  if (last_test_accuracy_ < options_.min_accuracy) {
    if (is_first()) {
      std::fprintf(stderr, "test accuracy %.4f is below %.4f\n", last_test_accuracy_,
                   options_.min_accuracy);
    }
    return 1;
  }
  return 0;
}

}  // namespace

int run(const Options& options, compute::Backend& backend, tr::Communicator& comm) {
  return Trainer(options, backend, comm).run();
}

}  // namespace train
