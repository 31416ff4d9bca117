// The measurement: for each case every contender is checked, then all are timed in turn, round by
// round, so that whatever the machine does in the meantime it does to all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/perf/contenders.hpp"
#include "cli/perf/options.hpp"
#include "cli/perf/team.hpp"
#include "cli/perf/traffic.hpp"
#include "perf/case.hpp"
#include "perf/failure.hpp"

namespace treering::perf {

// One contender in one case, in or out of place.
struct Timing {
  bool measured = false;
  std::string why_not;            // where it was not
  std::uint64_t iters = 0;        // per batch
  std::vector<double> rounds_us;  // time of one operation, slowest rank, by round
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
  std::optional<std::uint64_t> wrong;  // elements, over ranks and checks; none: not checked
  // Ours: the time of the peer that does best over ours, median over the rounds of both.
  std::optional<double> ratio;
  std::string best_peer;
  // On GPUs: what all ranks move through their memory, and the share of the bandwidth of copies
  // that this makes (1: as fast as cudaMemcpy).
  MemoryTraffic traffic;
  double of_copy = 0;
};

struct Row {
  Case what;  // in_place = 0
  std::uint64_t bytes = 0;
  std::string label;  // "treering", "gloo:bcube"
  bool ours = false;
  Timing timing[2];  // by Case::in_place
};

class Bench {
 public:
  // Where a ratio swings there are up to this many times as many rounds as asked for.
  static constexpr int kMostRounds = 4;

  // progress(done, all, what) is called before each contender's turn at a case.
  using Progress = std::function<void(int, int, const std::string&)>;

  Bench(const Job& job, const std::vector<TeamPlan>& plans, Teams& teams, Interrupt& interrupt,
        Progress progress)
      : job_(job), plans_(plans), teams_(teams), interrupt_(interrupt), progress_(progress) {}

  // Tells the workers how much memory they need; once, before the first case. On GPUs, measures
  // how fast they copy.
  Failure reserve();
  // Of all GPUs in use together, bytes copied; 0 on the host.
  double copy_gb_s() const { return copy_gb_s_; }
  // All cases of one type and operator, in ascending size.
  std::vector<Case> cases(tr_type_t type, RedOp redop) const;
  // One row per contender that can run the case in at least one mode; ours first.
  Failure measure(const Case& what, std::vector<Row>* rows);
  // True when the last Failure is the caller's fault: an algorithm that does not exist.
  bool is_usage_failure() const { return is_usage_failure_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Contender {
    std::size_t team = 0;
    bool ours = false;
    std::string setting;
    std::string label;
    Timing* timing = nullptr;
    std::uint64_t warmup = 0;
    bool beaten = false;  // far behind: takes no part in further rounds
  };

  Failure find_contenders(const Case& what, std::vector<Contender>* out);
  Failure check(const Case& what, Contender& contender);
  Failure calibrate(const Case& what, Contender& contender);
  Failure run_round(const Case& what, std::vector<Contender>& contenders);
  Failure steady(const Case& what, std::vector<Contender>& contenders);
  // One batch: microseconds per operation on the slowest rank.
  Failure run_batch(const Case& what, const Contender& contender, double* time_us);
  Failure measure_copy();
  void add_ceiling(const Case& what, const Contender& contender) const;
  Failure ask(const Contender& contender, Command command, std::vector<Reply>* replies);
  void note(const std::string& text);
  void advance(const Case& what, const Contender& contender);

  const Job& job_;
  const std::vector<TeamPlan>& plans_;
  Teams& teams_;
  Interrupt& interrupt_;
  Progress progress_;
  std::vector<std::string> notes_;  // each once
  int turns_ = 0;
  int turns_in_all_ = 0;
  bool is_usage_failure_ = false;
  double copy_gb_s_ = 0;
};

}  // namespace treering::perf
