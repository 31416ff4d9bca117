#include "cli/tune/measure.hpp"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <thread>

#include "treering/treering.hpp"

namespace treering::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTurns = 3;  // of all algorithms of a cell
constexpr std::uint64_t kMostCalls = 2000;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

tr_result_t call(Collective c, tr_comm_t comm, const float* in, float* out, std::uint64_t count) {
  switch (c) {
    case Collective::kAllReduce:
      return tr_all_reduce(in, out, count, TR_FLOAT32, TR_SUM, comm, nullptr);
    case Collective::kReduce:
      return tr_reduce(in, out, count, TR_FLOAT32, TR_SUM, 0, comm, nullptr);
    case Collective::kBroadcast:
      return tr_broadcast(in, out, count, TR_FLOAT32, 0, comm, nullptr);
    case Collective::kAllGather:
      return tr_all_gather(in, out, count, TR_FLOAT32, comm, nullptr);
    case Collective::kReduceScatter:
      return tr_reduce_scatter(in, out, count, TR_FLOAT32, TR_SUM, comm, nullptr);
    case Collective::kAllToAll:
      return tr_all_to_all(in, out, count, TR_FLOAT32, comm, nullptr);
    default:
      return TR_INVALID_ARGUMENT;
  }
}

std::vector<const algos::Algorithm*> contenders(Collective c, int size) {
  std::vector<const algos::Algorithm*> all;
  for (const algos::Algorithm& a : algos::all_algorithms()) {
    if (a.collective == c && !a.windows && a.supports(size)) all.push_back(&a);
  }
  return all;
}

// Ranks as threads that go through the same cells, in step.
class Team {
 public:
  Team(std::vector<Cell>& cells, double cell_us)
      : cells_(cells),
        size_(cells.front().size),
        cell_us_(cell_us),
        elapsed_us_(static_cast<std::size_t>(size_)),
        step_(size_) {}

  Status run() {
    auto comms = tr::Communicator::in_process(size_);
    if (!comms) return internal_error(comms.error().message);
    std::vector<std::thread> threads;
    for (tr::Communicator& comm : comms.value()) {
      threads.emplace_back([this, &comm] { member(comm); });
    }
    for (std::thread& t : threads) t.join();
    for (const std::string& error : errors_) {
      if (!error.empty()) return internal_error(error);
    }
    return {};
  }

 private:
  void member(tr::Communicator& comm) {
    std::uint64_t most = 0;
    for (const Cell& cell : cells_) most = std::max(most, cell.bytes);
    const std::size_t elems = most / sizeof(float) * static_cast<std::size_t>(size_);
    std::vector<float> in(elems, 1), out(elems);
    for (Cell& cell : cells_) {
      for (int turn = 0; turn < kTurns; ++turn) {
        for (Cell::Time& time : cell.times) {
          // A failed rank fails its peers, which then leave at the same place.
          if (!one(comm, cell, time, in.data(), out.data())) return step_.arrive_and_drop();
        }
      }
    }
    step_.arrive_and_drop();
  }

  bool one(tr::Communicator& comm, Cell& cell, Cell::Time& time, const float* in, float* out) {
    const std::uint64_t count = cell.bytes / sizeof(float);
    const auto calls = [&](std::uint64_t n) {
      for (std::uint64_t i = 0; i < n; ++i) {
        if (call(cell.collective, comm.get(), in, out, count) != TR_SUCCESS) return false;
      }
      return true;
    };
    const auto forced = comm.set_algorithm(collective_name(cell.collective), time.algorithm->name);
    if (!forced || !calls(2)) return fail(comm, time);
    step_.arrive_and_wait();
    Clock::time_point start = Clock::now();
    if (!calls(1)) return fail(comm, time);
    if (comm.rank() == 0) {
      const double share = cell_us_ / (kTurns * static_cast<double>(cell.times.size()));
      calls_ = static_cast<std::uint64_t>(
          std::clamp(share / std::max(us_since(start), 0.1), 1.0, double{kMostCalls}));
    }
    step_.arrive_and_wait();
    start = Clock::now();
    if (!calls(calls_)) return fail(comm, time);
    elapsed_us_[static_cast<std::size_t>(comm.rank())] = us_since(start);
    step_.arrive_and_wait();
    if (comm.rank() == 0) {
      const double us =
          *std::max_element(elapsed_us_.begin(), elapsed_us_.end()) / static_cast<double>(calls_);
      time.us = time.us == 0 ? us : std::min(time.us, us);
    }
    step_.arrive_and_wait();
    return true;
  }

  bool fail(const tr::Communicator& comm, const Cell::Time& time) {
    errors_[comm.rank() % 64] = std::string(time.algorithm->name) + ": " + tr_get_last_error();
    return false;
  }

  std::vector<Cell>& cells_;
  const int size_;
  const double cell_us_;
  std::uint64_t calls_ = 1;  // written by rank 0 between two steps
  std::vector<double> elapsed_us_;
  std::barrier<> step_;
  std::string errors_[64];
};

}  // namespace

Plan default_plan(const std::vector<int>& sizes) {
  Plan plan;
  plan.collectives = {Collective::kAllReduce, Collective::kReduce,        Collective::kBroadcast,
                      Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll};
  plan.sizes = sizes;
  if (sizes.empty()) {
    const int cores = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 2u, 64u));
    for (int n = 2; n <= cores; n *= 2) plan.sizes.push_back(n);
    if (plan.sizes.back() != cores) plan.sizes.push_back(cores);
  }
  plan.bytes = {8, 512, 4096, 16 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20};
  return plan;
}

Result<std::vector<Cell>> measure(const Plan& plan,
                                  const std::function<void(const std::string&)>& progress) {
  std::vector<Cell> all;
  const double cells =
      static_cast<double>(plan.collectives.size() * plan.sizes.size() * plan.bytes.size());
  for (const int size : plan.sizes) {
    for (const Collective c : plan.collectives) {
      progress(std::string(collective_name(c)) + " with " + std::to_string(size) + " ranks");
      std::vector<Cell> mine;
      for (const std::uint64_t bytes : plan.bytes) {
        Cell cell{c, size, bytes, {}};
        for (const algos::Algorithm* a : contenders(c, size)) cell.times.push_back({a, 0});
        mine.push_back(std::move(cell));
      }
      if (mine.empty() || mine.front().times.empty()) continue;
      TR_RETURN_IF_ERROR(Team(mine, plan.seconds * 1e6 / cells).run());
      all.insert(all.end(), mine.begin(), mine.end());
    }
  }
  return all;
}

Tuning tuning_of(const std::vector<Cell>& cells) {
  Tuning tuning;
  tuning.machine = machine_words();
  for (const Cell& cell : cells) {
    for (const Cell::Time& time : cell.times) {
      auto curve = std::find_if(tuning.curves.begin(), tuning.curves.end(), [&](const auto& c) {
        return c.algorithm == time.algorithm && c.size == cell.size;
      });
      if (curve == tuning.curves.end()) {
        tuning.curves.push_back({time.algorithm, cell.size, {}});
        curve = tuning.curves.end() - 1;
      }
      curve->points.push_back({cell.bytes, time.us});
    }
  }
  return tuning;
}

std::string machine_words() {
  std::ifstream file("/proc/cpuinfo");
  std::string line, model = "unknown CPU";
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    model = line.substr(std::min(line.size(), line.find(':') + 2));
    break;
  }
  return model + ", " + std::to_string(std::thread::hardware_concurrency()) +
         " cores, ranks as threads";
}

}  // namespace treering::tune
