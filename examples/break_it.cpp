// The faults that training over many ranks really has, made on purpose, and what Treering says of
// each: what happened, where, and on which rank.
//
//   break_it              all of them, one after another
//   break_it nan hang     these
//
// Ranks are threads of this program. Every fault ends by itself, within a few seconds, and the
// program fails if a diagnosis lacks what it must name.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "treering/parallel/rng.hpp"
#include "treering/parallel/simulated.hpp"
#include "treering/parallel/trace.hpp"
#include "treering/parallel/trainer.hpp"
#include "treering/treering.hpp"

#include "must.hpp"

using example::must;
using namespace tr::par;
using Said = std::vector<std::string>;  // by rank; empty: no error

// Runs `body` on `ranks` threads with a communicator each.
Said on_ranks(int ranks, const std::function<tr::Status(tr::Communicator&)>& body) {
  std::vector<tr::Communicator> comms = must(tr::Communicator::in_process(ranks));
  Said said(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      must(comms[r].set_option(TR_OPT_TIMEOUT_MS, 1500));
      const tr::Status status = body(comms[r]);
      if (!status) said[r] = status.error().message;
    });
  }
  for (std::thread& t : threads) t.join();
  return said;
}

Said hang() {
  return on_ranks(3, [](tr::Communicator& comm) -> tr::Status {
    std::vector<float> x(1000);
    if (tr::Status s = comm.all_reduce(x, tr::kSum); !s) return s;
    if (comm.rank() == 2) {  // an `if` that is true on some ranks only
      std::this_thread::sleep_for(std::chrono::seconds(3));
      return {};
    }
    return comm.all_reduce(x, tr::kSum);
  });
}

Said wrong_count() {
  return on_ranks(3, [](tr::Communicator& comm) {
    std::vector<float> x(comm.rank() == 1 ? 999 : 1000);  // uneven shards
    return comm.all_reduce(x, tr::kSum);
  });
}

Said wrong_type() {
  return on_ranks(3, [](tr::Communicator& comm) {
    std::vector<float> x(1000);
    std::vector<double> y(1000);
    return comm.rank() == 1 ? comm.all_reduce(y, tr::kSum) : comm.all_reduce(x, tr::kSum);
  });
}

Said wrong_order() {
  return on_ranks(2, [](tr::Communicator& comm) -> tr::Status {
    std::vector<float> x(1000), all(2000);
    const auto reduce = [&] { return comm.all_reduce(x, tr::kSum); };
    const auto gather = [&] { return comm.all_gather(x, all); };
    if (comm.rank() == 0) {
      tr::Status s = reduce();
      return s ? gather() : s;
    }
    tr::Status s = gather();
    return s ? reduce() : s;
  });
}

Said receive_first() {
  return on_ranks(2, [](tr::Communicator& comm) -> tr::Status {
    std::vector<float> x(1 << 20), y(x.size());
    const int other = 1 - comm.rank();
    if (tr::Status s = comm.recv(y, other); !s) return s;  // both wait for the other to send
    return comm.send(x, other);
  });
}

// The same mistake as a schedule: found before anything runs.
Said pipeline_deadlock() {
  Schedule schedule = must(make_schedule("1f1b", 2, 2));
  using Kind = Action::Kind;
  schedule.actions[0] = {{Kind::kRecvGradient, 0, 0},   {Kind::kForward, 0, 0},
                         {Kind::kSendActivation, 0, 0}, {Kind::kBackward, 0, 0},
                         {Kind::kForward, 0, 1},        {Kind::kSendActivation, 0, 1},
                         {Kind::kRecvGradient, 0, 1},   {Kind::kBackward, 0, 1}};
  const tr::Result<ScheduleFacts> facts = verify(schedule);
  return {facts ? "" : facts.error().message};
}

class Rows final : public Data {
 public:
  std::int64_t rows() const override { return 64; }
  std::int64_t features() const override { return 32; }
  void read(std::span<const std::int64_t> rows, std::span<float> features,
            std::span<std::int32_t> labels) const override {
    for (std::size_t i = 0; i < features.size(); ++i) {
      const auto row = static_cast<std::uint64_t>(rows[i / 32]);
      features[i] = static_cast<float>(random_symmetric(1, row, i % 32));
      if (row == 40) features[i] = std::numeric_limits<float>::quiet_NaN();  // a broken sample
    }
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int>(rows[i] % 4);
  }
};

// One step of a small net on every rank.
Said train(int ranks, const TrainerOptions& options) {
  std::vector<std::unique_ptr<Comm>> comms = must(make_threads_comms(ranks));
  Said said(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      const auto compute = must(make_host_compute("ref"));
      Model model(tr::par::Loss::kCrossEntropy);
      model.linear(32, 16).relu().linear(16, 4);
      auto trainer = Trainer::create(std::move(comms[r]), *compute, model, options);
      if (!trainer) {
        said[r] = trainer.error().message;
        return;
      }
      const Rows data;
      const auto step = trainer.value()->step(data, shuffled_rows(data.rows(), 1, 0));
      if (!step) said[r] = step.error().message;
    });
  }
  for (std::thread& t : threads) t.join();
  return said;
}

Said nan_on_one_rank() {
  TrainerOptions options;
  options.mesh.dp = 2;
  options.check_finite = true;
  return train(2, options);
}

Said wrong_product() {
  TrainerOptions options;
  options.mesh = {2, 2, 2};
  return train(4, options);
}

// Every rank divides by its own rows and averages: seen only by comparing with the right gradient.
Said wrong_scale() {
  return on_ranks(2, [](tr::Communicator& comm) -> tr::Status {
    const int rows[] = {10, 6};
    std::vector<double> wrong = {0.0}, right = {0.0};
    for (int i = 0; i < rows[comm.rank()]; ++i) {
      const double gradient = comm.rank() == 0 ? 1.0 : 2.0;  // of one row
      wrong[0] += gradient / rows[comm.rank()];
      right[0] += gradient / 16;
    }
    if (tr::Status s = comm.all_reduce(wrong, tr::kAvg); !s) return s;
    if (tr::Status s = comm.all_reduce(right, tr::kSum); !s) return s;
    char text[160];
    std::snprintf(
        text, sizeof text,
        "mean of means %.3f, gradient of all rows %.3f: %.0f %% off; divide by the global "
        "number of rows and sum",
        wrong[0], right[0], 100 * std::abs(wrong[0] / right[0] - 1));
    return tr::Error{TR_INVALID_ARGUMENT, text};
  });
}

Said out_of_memory() {
  const auto compute = must(make_host_compute("ref"));
  const tr::Result<Tensor> tensor = Tensor::make(compute->memory(), Use::kOptimizer, 1 << 20,
                                                 std::int64_t{1} << 31, DType::kFloat32);
  return {tensor ? "" : tensor.error().message};
}

// A net so wide and a batch so small that links of 1 GB/s take most of a step; computed time.
Said too_much_communication() {
  constexpr int kRanks = 2;
  std::vector<std::unique_ptr<Comm>> comms = must(make_threads_comms(kRanks));
  Said said(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      SimulatedClock clock;
      Trace trace(r, clock);
      const SimulatedLinks links{.intra_bytes_per_us = 1e3, .inter_bytes_per_us = 1e3};
      const auto host = must(make_host_compute("ref"));
      const auto compute = simulate_compute(*host, clock, 100e3, &trace);
      Model model(tr::par::Loss::kMeanSquare);
      model.linear(32, 512).relu().linear(512, 512).relu().linear(512, 32);
      TrainerOptions options;
      options.mesh.dp = kRanks;
      auto world =
          simulate_links(std::move(comms[static_cast<std::size_t>(r)]), clock, links, &trace);
      const auto trainer = must(Trainer::create(std::move(world), *compute, model, options));
      const Rows data;
      const std::vector<std::int64_t> rows = {0, 1, 2, 3};
      must(trainer->step(data, rows));
      char text[160];
      const double share = overlap_of(trace).exposed_us / clock.now_us();
      std::snprintf(
          text, sizeof text,
          "communication that nothing was computed beside takes %.0f %% of the step, more "
          "than 30 %%",
          100 * share);
      if (share > 0.3) said[static_cast<std::size_t>(r)] = text;
    });
  }
  for (std::thread& t : threads) t.join();
  return said;
}

struct Fault {
  const char* name;
  const char* what;
  Said (*make)();
  std::vector<const char*> must_name;
  const char* advice;
};

const Fault kFaults[] = {
    {"hang",
     "rank 2 leaves an all_reduce out",
     hang,
     {"rank 2", "all_reduce"},
     "look for an `if` that differs between ranks before that call"},
    {"count",
     "rank 1 passes 999 elements, the others 1000",
     wrong_count,
     {"rank 1", "999", "1000"},
     "pad, or use a v-variant"},
    {"type",
     "rank 1 passes float64, the others float32",
     wrong_type,
     {"rank 1", "float64"},
     "convert before the call"},
    {"order",
     "two ranks call two collectives in different order",
     wrong_order,
     {"all_gather", "all_reduce"},
     "issue collectives in one order; buckets by index, not by readiness"},
    {"receive_first",
     "two ranks receive before they send",
     receive_first,
     {"receive", "rank"},
     "put send and receive into a group, or on a stream"},
    {"schedule",
     "a pipeline schedule that receives first",
     pipeline_deadlock,
     {"rank 0", "rank 1"},
     "schedules are proven before they run: mend it, or use one of Treering's"},
    {"nan",
     "one broken sample",
     nan_on_one_rank,
     {"rank", "layer"},
     "look at that rank's rows; afterwards it would be on all ranks"},
    {"product",
     "dp 2 x pp 2 x tp 2 on 4 ranks",
     wrong_product,
     {"2", "8", "4"},
     "dp x pp x tp must be the number of ranks"},
    {"scale", "means of uneven shares are averaged", wrong_scale, {"off"}, "as it says"},
    {"communication",
     "4 rows a step over links of 1 GB/s",
     too_much_communication,
     {"communication", "30 %"},
     "a larger batch, accumulation, compression (--compress), or tensor parallelism inside a node"},
    {"memory",
     "an optimizer state of 8 PiB",
     out_of_memory,
     {"optimizer", "bytes"},
     "shard it: --zero 1 to 3; `plan` says what fits"},
};

bool show(const Fault& fault) {
  std::printf("\n== %s: %s\n", fault.name, fault.what);
  const Said said = fault.make();
  std::string all;
  for (std::size_t r = 0; r < said.size(); ++r) {
    if (said[r].empty()) continue;
    std::printf("   rank %zu: %s\n", r, said[r].c_str());
    all += said[r] + "\n";
  }
  std::printf("   what to do: %s\n", fault.advice);
  bool good = true;
  for (const char* word : fault.must_name) {
    if (all.find(word) != std::string::npos) continue;
    std::printf("   MISSING: nobody named \"%s\"\n", word);
    good = false;
  }
  return good;
}

int main(int argc, char** argv) {
  bool good = true;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) {
      std::printf(
          "break_it [FAULT ...]: makes these faults, or all, and shows what is said of each\n");
      for (const Fault& fault : kFaults) std::printf("  %-14s %s\n", fault.name, fault.what);
      return 0;
    }
  }
  for (int i = 1; i < argc; ++i) {
    bool known = false;
    for (const Fault& fault : kFaults) known |= std::strcmp(argv[i], fault.name) == 0;
    if (known) continue;
    std::fprintf(stderr, "break_it: no fault \"%s\"; there are:", argv[i]);
    for (const Fault& fault : kFaults) std::fprintf(stderr, " %s", fault.name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  for (const Fault& fault : kFaults) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted |= std::strcmp(argv[i], fault.name) == 0;
    if (wanted) good &= show(fault);
  }
  return good ? 0 : 1;
}
