// What `treering perf` is asked to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/case.hpp"
#include "perf/failure.hpp"

namespace CLI {
class App;
}

namespace treering::perf {

struct Options {
  bool list_peers = false;  // and do nothing else
  std::string op;
  int ranks = 0;  // 0, not given: as many as this machine has cores, at least 2
  std::string min_size = "8";
  std::string max_size = "64M";
  double factor = 2;
  std::string types = "float32";
  std::string redops = "sum";
  int root = 0;
  std::string algorithm;                // of our side, in every size
  std::vector<std::string> algorithms;  // each as a contender of its own
  std::vector<std::string> against;
  bool in_place = false;      // only in place
  bool out_of_place = false;  // only out of place
  bool registered = false;
  int hosts = 1;  // to play on this machine
  std::string device = "host";
  std::string protocol;     // of our kernels, in every size; empty: the library's choice
  bool processes = false;   // ranks on GPUs are processes, not threads of one
  std::uint64_t iters = 0;  // per batch; 0: as many as last batch_ms
  double batch_ms = 3;
  int rounds = 9;
  bool check = false;
  int check_iters = 1;
  double min_ratio = 0;  // 0: not asked for
  double timeout_s = 60;
  std::uint64_t seed = 1;
  std::string json_file;
};

// Options, resolved: what to measure, in this order.
struct Job {
  Options options;
  bool on_gpu = false;
  Op op = Op::kAllReduce;
  std::vector<tr_type_t> types;
  std::vector<RedOp> redops;
  std::vector<std::uint32_t> modes;   // of Case::in_place
  std::vector<std::uint64_t> totals;  // bytes, ascending
  bool rounds_sizes = false;          // down to whole elements
  bool leaves_sizes_out = false;      // those too small for one element of every rank
};

void declare_options(CLI::App& command, Options& options);
// Bad usage: the sentence to print.
Failure resolve(const Options& options, Job* out);

// "64M" -> 67108864; K, M, G are powers of 1024, as in nccl-tests.
Failure parse_size(const std::string& text, std::uint64_t* out);
// 65536 -> "64K"; a size that is no whole number of units is printed in bytes.
std::string size_text(std::uint64_t bytes);

}  // namespace treering::perf
