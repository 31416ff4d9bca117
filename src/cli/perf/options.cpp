#include "cli/perf/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sstream>
#include <unistd.h>

namespace treering::perf {
namespace {

constexpr std::uint64_t kMaxBytes = 1ull << 40;
constexpr int kMaxRanks = 1024;
constexpr std::uint64_t kMaxIters = 1'000'000'000;

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> out;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) out.push_back(item);
  return out;
}

template <class T, class FromName, class ToName>
Failure parse_list(const std::string& text, const char* what, int all, FromName from_name,
                   ToName to_name, std::vector<T>* out) {
  for (const std::string& name : split_list(text)) {
    const auto value = from_name(name);
    if (name != "all" && !value) {
      std::string known = "all";
      for (int i = 0; i < all; ++i) known += std::string(", ") + to_name(static_cast<T>(i));
      return std::string("unknown ") + what + " \"" + name + "\"; there are: " + known;
    }
    if (value) out->push_back(*value);
    for (int i = 0; !value && i < all; ++i) out->push_back(static_cast<T>(i));
  }
  if (out->empty()) return std::string("no ") + what + " given";
  return std::nullopt;
}

// Before the sweep: whether what will be measured can be written at its end.
Failure check_writable(const std::string& path) {
  if (path.empty()) return std::nullopt;
  std::error_code ignored;
  const std::filesystem::path file(path);
  if (std::filesystem::is_directory(file, ignored))
    return with_errno("cannot write " + path, EISDIR);
  const bool exists = ::faccessat(AT_FDCWD, path.c_str(), F_OK, AT_EACCESS) == 0;
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  const bool is_writable =
      exists ? ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0
             : ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
  return is_writable ? std::nullopt : Failure(with_errno("cannot write " + path, errno));
}

Failure resolve_sizes(const Options& options, Job* job) {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  if (Failure failure = parse_size(options.min_size, &first)) return "-b: " + *failure;
  if (Failure failure = parse_size(options.max_size, &last)) return "-e: " + *failure;
  if (first > last) return "-b " + options.min_size + " is larger than -e " + options.max_size;
  if (!(options.factor > 1)) return "-f must be larger than 1";
  if (job->op == Op::kBarrier) {
    job->totals = {0};
    return std::nullopt;
  }
  for (auto size = static_cast<double>(first); size <= static_cast<double>(last);
       size *= options.factor) {
    job->totals.push_back(static_cast<std::uint64_t>(size));
  }
  return std::nullopt;
}

Failure resolve_device(const Options& options, Job* job) {
  job->on_gpu = options.device == "cuda";
  if (options.hosts > 1 && (job->on_gpu || options.registered))
    return "--hosts is for host memory that is not registered";
  if (options.hosts > job->options.ranks)
    return "--hosts: " + std::to_string(options.hosts) + " hosts for " +
           std::to_string(job->options.ranks) + " ranks";
  for (const auto& [is_given, name] : {std::pair(!options.protocol.empty(), "--protocol"),
                                       std::pair(options.processes, "--processes")}) {
    if (is_given && !job->on_gpu) return std::string(name) + " is for --device cuda";
  }
  return std::nullopt;
}

// A size is measured as the largest whole number of elements of every rank that it has room for.
Failure fit_sizes(Job* job) {
  const int ranks = job->options.ranks;
  std::uint64_t least = ~std::uint64_t{0};
  bool any = false;
  for (const tr_type_t type : job->types) {
    Case what;
    what.op = job->op;
    what.type = type;
    what.count = 1;
    least = std::min(least, total_bytes(what, ranks));
    for (const std::uint64_t total : job->totals) {
      what.count = count_for_bytes(job->op, type, ranks, total);
      const bool fits = what.count > 0 || job->op == Op::kBarrier;
      any |= fits;
      job->leaves_sizes_out |= !fits;
      job->rounds_sizes |= fits && total_bytes(what, ranks) != total;
    }
  }
  if (any) return std::nullopt;
  return "none of the sizes from -b " + job->options.min_size + " to -e " + job->options.max_size +
         " has room for one element on every rank, which takes " + std::to_string(least) + " bytes";
}

}  // namespace

void declare_options(CLI::App& command, Options& options) {
  std::string ops;
  for (int i = 0; i < kNumOps; ++i)
    ops += (i ? " " : "") + std::string(op_name(static_cast<Op>(i)));
  command.add_option("OP", options.op, "one of: " + ops);
  command.add_flag("--list-peers", options.list_peers, "print the peers present here, one a line");
  command.add_option("-n,--ranks", options.ranks, "ranks (default: the cores, at least 2)")
      ->check(CLI::Range(1, kMaxRanks));
  command.add_option("-b,--min-bytes", options.min_size, "smallest size (K, M, G)")
      ->capture_default_str();
  command.add_option("-e,--max-bytes", options.max_size, "largest size")->capture_default_str();
  command.add_option("-f,--factor", options.factor, "from size to size")->capture_default_str();
  command.add_option("--type", options.types, "types, separated by commas, or all")
      ->capture_default_str();
  command.add_option("--redop", options.redops, "operators, separated by commas, or all")
      ->capture_default_str();
  command.add_option("--root", options.root, "root of rooted operations")->capture_default_str();
  command.add_option("--algo", options.algorithm, "force one algorithm on our side");
  command.add_option("--algos", options.algorithms, "measure these of our algorithms side by side")
      ->delimiter(',');
  command
      .add_option(
          "--against", options.against,
          "peers: mpi, gloo (all settings of each), mpi-nocma, gloo:ring, nccl, NAME=WORKER")
      ->delimiter(',');
  auto* in = command.add_flag("--in-place", options.in_place, "measure in place only");
  command.add_flag("--out-of-place", options.out_of_place, "measure out of place only")
      ->excludes(in);
  command.add_flag("--registered", options.registered,
                   "our buffers are registered with the communicator");
  command
      .add_option("--hosts", options.hosts,
                  "play so many hosts here: ranks of different ones talk TCP over loopback, and "
                  "Open MPI's too")
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  command
      .add_option("--device", options.device,
                  "cuda: buffers are GPU memory, times are those of CUDA events")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  command.add_option("--protocol", options.protocol,
                     "force a protocol of our kernels (Simple, LL, LL128)");
  command.add_flag("--processes", options.processes,
                   "--device cuda: a process per rank instead of a thread");
  command.add_option("--iters", options.iters, "iterations per batch (default: by time)")
      ->check(CLI::Range(std::uint64_t{1}, kMaxIters));
  command.add_option("--batch-ms", options.batch_ms, "length of a batch")->capture_default_str();
  command.add_option("--rounds", options.rounds, "batches per size and library")
      ->capture_default_str();
  command.add_flag("--check", options.check,
                   "check four times with changing data, and NaN and infinity cases");
  command.add_option("--check-iters", options.check_iters, "checks per size; 0: none")
      ->capture_default_str();
  command.add_option("--min-ratio", options.min_ratio,
                     "exit with 3 where best peer's time / our time is below this");
  command.add_option("--timeout", options.timeout_s, "seconds to start, and for each batch")
      ->capture_default_str();
  command.add_option("--seed", options.seed, "of the data")->capture_default_str();
  command.add_option("--json", options.json_file, "write everything to this file");
}

Failure parse_size(const std::string& text, std::uint64_t* out) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit = end;
  if (!unit.empty() && (unit.back() == 'B' || unit.back() == 'b')) unit.pop_back();
  double scale = 1;
  if (unit == "K" || unit == "k") {
    scale = 1024;
  } else if (unit == "M" || unit == "m") {
    scale = 1024.0 * 1024;
  } else if (unit == "G" || unit == "g") {
    scale = 1024.0 * 1024 * 1024;
  } else if (!unit.empty()) {
    end = nullptr;
  }
  const double bytes = number * scale;
  if (end == nullptr || end == text.c_str() || !(bytes >= 1) ||
      bytes > static_cast<double>(kMaxBytes)) {
    return "\"" + text + "\" is not a size from 1 to 1024G (examples: 8, 4K, 64M)";
  }
  *out = static_cast<std::uint64_t>(bytes);
  return std::nullopt;
}

std::string size_text(std::uint64_t bytes) {
  const char* units[] = {"G", "M", "K"};
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t unit = 1ull << (10 * (3 - i));
    if (bytes >= unit && bytes % unit == 0) return std::to_string(bytes / unit) + units[i];
  }
  return std::to_string(bytes);
}

Failure resolve(const Options& options, Job* out) {
  Job job;
  job.options = options;
  const auto op = op_from_name(options.op);
  if (!op) {
    std::string known;
    for (int i = 0; i < kNumOps; ++i) {
      known += (i ? ", " : "") + std::string(op_name(static_cast<Op>(i)));
    }
    return (options.op.empty() ? "no operation given"
                               : "unknown operation \"" + options.op + "\"") +
           "; there are: " + known;
  }
  job.op = *op;
  if (job.options.ranks == 0) {
    job.options.ranks = std::max(2, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  if (options.root < 0 || options.root >= job.options.ranks) {
    return "--root must be from 0 to " + std::to_string(job.options.ranks - 1);
  }
  if (Failure failure = resolve_sizes(options, &job)) return failure;
  if (Failure failure =
          parse_list(options.types, "type", TR_NUM_TYPES, type_from_name, type_name, &job.types)) {
    return failure;
  }
  if (Failure failure = parse_list(options.redops, "operator", kNumRedOps, red_op_from_name,
                                   red_op_name, &job.redops)) {
    return failure;
  }
  if (!reduces(job.op)) job.redops = {RedOp::kSum};
  if (job.op == Op::kBarrier) job.types = {TR_UINT8};
  if (options.in_place && !has_in_place(job.op)) {
    return std::string(op_name(job.op)) + " cannot run in place";
  }
  if (!options.in_place) job.modes.push_back(0);
  if (!options.out_of_place && has_in_place(job.op)) job.modes.push_back(1);
  if (options.rounds < 1) return "--rounds must be at least 1";
  if (options.check_iters < 0) return "--check-iters must be at least 0";
  if (!(options.batch_ms > 0) || !(options.timeout_s > 0)) {
    return "--batch-ms and --timeout must be larger than 0";
  }
  if (!(options.min_ratio >= 0)) return "--min-ratio must be larger than 0";
  if (options.min_ratio > 0 && options.against.empty()) {
    return "--min-ratio needs --against: there is nothing to compare with";
  }
  if (Failure failure = resolve_device(options, &job)) return failure;
  if (Failure failure = fit_sizes(&job)) return failure;
  if (Failure failure = check_writable(options.json_file)) return "--json: " + *failure;
  bool any = false;
  for (tr_type_t type : job.types) {
    for (RedOp redop : job.redops) any = any || is_defined(job.op, redop, type);
  }
  if (!any) {
    return std::string(op_name(job.op)) + " is not defined for " + options.redops + " of " +
           options.types;
  }
  if (options.check) job.options.check_iters = std::max(4, options.check_iters);
  *out = std::move(job);
  return std::nullopt;
}

}  // namespace treering::perf
