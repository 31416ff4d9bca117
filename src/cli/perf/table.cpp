#include "cli/perf/table.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <sys/ioctl.h>
#include <unistd.h>

namespace treering::perf {
namespace {

constexpr const char* kModeNames[2] = {"out of place", "in place"};

// Four digits that count, whatever the magnitude: 0.2214, 12.34, 20480.
std::string time_text(double us) {
  char text[32];
  std::snprintf(text, sizeof text, us < 10 ? "%.3f" : us < 1000 ? "%.2f" : "%.0f", us);
  return text;
}

std::string spread_text(const Timing& timing) {
  return time_text(timing.min_us) + ".." + time_text(timing.max_us);
}

// A line under construction; printed without the blanks at its end.
class Line {
 public:
  template <class... Args>
  void add(const char* format, Args... args) {
    char text[128];
    std::snprintf(text, sizeof text, format, args...);
    text_ += text;
  }
  void print() {
    text_.resize(text_.find_last_not_of(' ') + 1);
    std::printf("%s\n", text_.c_str());
    text_.clear();
  }

 private:
  std::string text_;
};

// Multiples of the vector: "7.00", or ">4.00" where that is only the least.
std::string moved_text(const Timing& timing, std::uint64_t bytes) {
  char text[32];
  std::snprintf(
      text, sizeof text, "%s%.2f", timing.traffic.at_least ? ">" : "",
      bytes > 0 ? static_cast<double>(timing.traffic.bytes) / static_cast<double>(bytes) : 0.0);
  return text;
}
std::string of_copy_text(const Timing& timing) {
  char text[32];
  std::snprintf(text, sizeof text, "%s%.1f%%", timing.traffic.at_least ? ">" : "",
                timing.of_copy * 100);
  return text;
}

void add_timing(const Case& what, const Job& job, const Timing& timing, bool with_ratio,
                Line* line) {
  const int ranks = job.options.ranks;
  if (!timing.measured) {
    line->add("  %9s %19s %8s %8s %7s", "N/A", "", "", "", "");
    if (job.on_gpu) line->add(" %7s %7s", "", "");
    if (with_ratio) line->add(" %6s", "");
    return;
  }
  const std::string wrong = timing.wrong ? std::to_string(*timing.wrong) : "N/A";
  line->add("  %9s %19s %8.2f %8.2f %7s", time_text(timing.median_us).c_str(),
            spread_text(timing).c_str(), alg_bandwidth(what, ranks, timing.median_us),
            bus_bandwidth(what, ranks, timing.median_us), wrong.c_str());
  if (job.on_gpu) {
    line->add(" %7s %7s", moved_text(timing, total_bytes(what, ranks)).c_str(),
              of_copy_text(timing).c_str());
  }
  if (!with_ratio) return;
  if (timing.ratio) {
    line->add(" %6.2f", *timing.ratio);
  } else {
    line->add(" %6s", "");
  }
}

}  // namespace

void Table::print_head(const std::vector<std::string>& versions,
                       const std::vector<std::string>& gpus) const {
  const Options& options = job_.options;
  const std::string hosts =
      options.hosts > 1 ? ", playing " + std::to_string(options.hosts) + " hosts" : "";
  std::printf("# treering perf %s: %d ranks on %ld cores%s%s, root %d, seed %llu\n",
              op_name(job_.op), options.ranks, ::sysconf(_SC_NPROCESSORS_ONLN), hosts.c_str(),
              options.registered ? ", registered buffers" : "", options.root,
              static_cast<unsigned long long>(options.seed));
  for (const std::string& version : versions) std::printf("# %s\n", version.c_str());
  for (const std::string& line : gpus) std::printf("# %s\n", line.c_str());
  std::printf(
      "# time: slowest rank, median of %d rounds of %s, all libraries in turn; min..max beside "
      "it\n",
      options.rounds,
      options.iters > 0 ? (std::to_string(options.iters) + " iterations").c_str()
                        : ("about " + time_text(options.batch_ms) + " ms").c_str());
  if (job_.rounds_sizes || job_.leaves_sizes_out) {
    std::printf("# size: rounded down to whole elements, the same number on every rank%s\n",
                job_.leaves_sizes_out ? "; what has no room for one is left out" : "");
  }
  if (has_peers()) {
    std::printf(
        "# ratio: the best peer's time / our time in the same round, median (> 1: we are faster);\n"
        "#        up to %d times as many rounds where it swings\n",
        Bench::kMostRounds);
  }
  std::printf("#\n");
  Line line;
  line.add("#%*s", has_labels() ? 74 : 49, "");
  for (const std::uint32_t mode : job_.modes) {
    line.add("  %-*s", (has_peers() ? 62 : 55) + (job_.on_gpu ? 16 : 0), kModeNames[mode]);
  }
  line.print();
  line.add("#%11s %11s %11s %10s %4s", "size", "count", "type", "redop", "root");
  if (has_labels()) line.add(" %-24s", "library");
  for (std::size_t i = 0; i < job_.modes.size(); ++i) {
    line.add("  %9s %19s %8s %8s %7s", "time", "min..max", "algbw", "busbw", "#wrong");
    if (job_.on_gpu) line.add(" %7s %7s", "moved", "of copy");
    if (has_peers()) line.add(" %6s", "ratio");
  }
  line.print();
  line.add("#%11s %11s %11s %10s %4s", "(B)", "(elements)", "", "", "");
  if (has_labels()) line.add(" %-24s", "");
  for (std::size_t i = 0; i < job_.modes.size(); ++i) {
    line.add("  %9s %19s %8s %8s %7s", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
    if (job_.on_gpu) line.add(" %7s %7s", "(sizes)", "");
    if (has_peers()) line.add(" %6s", "");
  }
  line.print();
  std::fflush(stdout);
}

void Table::print_rows(const std::vector<Row>& rows) const {
  for (const Row& row : rows) {
    Line line;
    line.add(" %11llu %11llu %11s %10s %4s", static_cast<unsigned long long>(row.bytes),
             static_cast<unsigned long long>(row.what.count), type_name(row.what.type),
             reduces(row.what.op) ? red_op_name(row.what.redop) : "none",
             is_rooted(row.what.op) ? std::to_string(row.what.root).c_str() : "-1");
    if (has_labels()) line.add(" %-24s", row.label.c_str());
    for (const std::uint32_t mode : job_.modes) {
      add_timing(row.what, job_, row.timing[mode], has_peers(), &line);
    }
    line.print();
  }
  std::fflush(stdout);
}

void Table::print_end(const std::vector<Row>& rows, const std::vector<std::string>& notes) const {
  for (const std::string& note : notes) std::printf("# %s\n", note.c_str());
  const std::uint64_t wrong = count_wrong(rows);
  std::printf("# Out of bounds values : %llu %s\n", static_cast<unsigned long long>(wrong),
              wrong == 0 ? "OK" : "FAILED");
  std::map<std::string, std::pair<double, int>> sums;
  for (const Row& row : rows) {
    for (const Timing& timing : row.timing) {
      if (!timing.measured) continue;
      auto& [sum, count] = sums[row.label];
      sum += bus_bandwidth(row.what, job_.options.ranks, timing.median_us);
      ++count;
    }
  }
  for (const auto& [label, entry] : sums) {
    std::printf("# Avg bus bandwidth    : %.4f GB/s %s\n", entry.first / entry.second,
                label.c_str());
  }
  if (job_.options.min_ratio > 0) {
    const std::vector<std::string> below = below_ratio(rows, job_.options.min_ratio);
    std::printf("# Below ratio %.2f     : %zu %s\n", job_.options.min_ratio, below.size(),
                below.empty() ? "OK" : "FAILED");
    for (const std::string& line : below) std::printf("#   %s\n", line.c_str());
  }
  std::fflush(stdout);
}

std::vector<std::string> describe_gpus(const Job& job, const Team& ours, double copy_gb_s) {
  if (!job.on_gpu) return {};
  const int ranks = job.options.ranks;
  const int devices = std::min(ranks, ours.devices());
  const int most = (ranks + devices - 1) / devices;
  char copies[64];
  std::snprintf(copies, sizeof copies, "%.1f", copy_gb_s);
  std::vector<std::string> lines;
  lines.push_back(std::to_string(ranks) +
                  (job.options.processes ? " ranks, a process each, on "
                                         : " ranks, threads of one process, on ") +
                  std::to_string(devices) + (devices == 1 ? " GPU (" : " GPUs (") + ours.device() +
                  ")" + (job.options.protocol.empty() ? "" : ", protocol " + job.options.protocol));
  if (most > 1) {
    lines.push_back(std::to_string(most) +
                    " ranks share a GPU: these numbers measure kernels and memory, not NVLink");
  }
  lines.push_back(
      "moved: bytes that all ranks read and write in GPU memory, in multiples of the "
      "size; >: the least that");
  lines.push_back("       any algorithm must, where it is not named (--algo, --algos)");
  lines.push_back(
      "of copy: moved / time, as a share of a copy's traffic in GPU memory, measured in "
      "this run: 2 x " +
      std::string(copies) + " GB/s;");
  lines.push_back("       more than 100 % where slots or buffers stay in the GPU's cache");
  return lines;
}

std::vector<std::string> below_ratio(const std::vector<Row>& rows, double min_ratio) {
  std::vector<std::string> out;
  for (const Row& row : rows) {
    if (!row.ours || row.label != "treering") continue;
    for (int mode = 0; mode < 2; ++mode) {
      const Timing& timing = row.timing[mode];
      if (!timing.ratio || *timing.ratio >= min_ratio) continue;
      char ratio[32];
      std::snprintf(ratio, sizeof ratio, "%.2f", *timing.ratio);
      out.push_back(std::string(type_name(row.what.type)) + " " + size_text(row.bytes) + " " +
                    kModeNames[mode] + ": " + ratio + " of " + timing.best_peer);
    }
  }
  return out;
}

std::uint64_t count_wrong(const std::vector<Row>& rows) {
  std::uint64_t wrong = 0;
  for (const Row& row : rows) {
    for (const Timing& timing : row.timing) wrong += timing.wrong.value_or(0);
  }
  return wrong;
}

ProgressBar::ProgressBar() : is_terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressBar::show(int done, int all, const std::string& what) {
  if (!is_terminal_) return;
  constexpr int kWidth = 24;
  winsize window;
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  const int full = all > 0 ? done * kWidth / all : 0;
  std::string line = "[" + std::string(static_cast<std::size_t>(full), '#') +
                     std::string(static_cast<std::size_t>(kWidth - full), '.') + "] " +
                     std::to_string(done) + "/" + std::to_string(all) + " " + what;
  // A line that wraps could not be drawn over.
  line.resize(std::min<std::size_t>(line.size(), is_known ? window.ws_col - 1u : 79u));
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  is_shown_ = true;
}

void ProgressBar::clear() {
  if (!is_shown_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  is_shown_ = false;
}

}  // namespace treering::perf
