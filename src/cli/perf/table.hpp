// The table on stdout, in the order of nccl-tests' columns, and the progress bar on a terminal.
#pragma once

#include <string>
#include <vector>

#include "cli/perf/bench.hpp"
#include "cli/perf/options.hpp"
#include "cli/perf/team.hpp"

namespace treering::perf {

class Table {
 public:
  explicit Table(const Job& job) : job_(job) {}
  // `gpus`: what the numbers are worth, on GPUs.
  void print_head(const std::vector<std::string>& versions,
                  const std::vector<std::string>& gpus) const;
  void print_rows(const std::vector<Row>& rows) const;
  // Notes, #wrong in all, average bandwidth, sizes below --min-ratio.
  void print_end(const std::vector<Row>& rows, const std::vector<std::string>& notes) const;

 private:
  bool has_peers() const { return !job_.options.against.empty(); }
  bool has_labels() const { return has_peers() || !job_.options.algorithms.empty(); }

  const Job& job_;
};

// The head's lines about GPUs; none on the host.
std::vector<std::string> describe_gpus(const Job& job, const Team& ours, double copy_gb_s);

// One line on stderr that is drawn over; nothing at all where stderr is no terminal.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar() { clear(); }
  void show(int done, int all, const std::string& what);
  void clear();

 private:
  bool is_terminal_ = false;
  bool is_shown_ = false;
};

// Our own choice (not --algos) below --min-ratio: "64K in place 0.81 (mpi-nocma)".
std::vector<std::string> below_ratio(const std::vector<Row>& rows, double min_ratio);
std::uint64_t count_wrong(const std::vector<Row>& rows);

}  // namespace treering::perf
