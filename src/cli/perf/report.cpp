#include "cli/perf/report.hpp"

#include <cerrno>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/utsname.h>
#include <unistd.h>

namespace treering::perf {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const Row& row, const Timing& timing, const Job& job) {
  const int ranks = job.options.ranks;
  if (!timing.measured) return nullptr;
  ordered_json out;
  out["time_us"] = timing.median_us;
  out["min_us"] = timing.min_us;
  out["max_us"] = timing.max_us;
  out["algbw_gb_s"] = alg_bandwidth(row.what, ranks, timing.median_us);
  out["busbw_gb_s"] = bus_bandwidth(row.what, ranks, timing.median_us);
  out["wrong"] = timing.wrong ? ordered_json(*timing.wrong) : ordered_json(nullptr);
  out["iters"] = timing.iters;
  out["rounds_us"] = timing.rounds_us;
  if (job.on_gpu) {
    out["moved_bytes"] = timing.traffic.bytes;
    out["moved_is_least"] = timing.traffic.at_least;
    out["of_copy"] = timing.of_copy;
  }
  if (timing.ratio) {
    out["ratio"] = *timing.ratio;
    out["best_peer"] = timing.best_peer;
  }
  return out;
}

}  // namespace

Machine describe_machine() {
  Machine out;
  out.cpu = "unknown";
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      out.cpu = line.substr(colon + 2);
      break;
    }
  }
  out.cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  utsname name;
  if (::uname(&name) == 0) {
    out.kernel = std::string(name.sysname) + " " + name.release + " " + name.machine;
  }
  out.memory_gib = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                   static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1024.0 * 1024 * 1024);
  return out;
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc;
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

Failure write_json(const std::string& path, const Job& job, const Report& report) {
  const Machine machine = describe_machine();
  const int ranks = job.options.ranks;
  ordered_json out;
  out["command"] = report.command;
  out["date"] = report.date;
  out["machine"] = {{"cpu", machine.cpu},
                    {"cores", machine.cores},
                    {"kernel", machine.kernel},
                    {"memory_gib", machine.memory_gib}};
  out["libraries"] = report.libraries;
  out["operation"] = op_name(job.op);
  out["ranks"] = ranks;
  out["rounds"] = job.options.rounds;
  out["seed"] = job.options.seed;
  out["hosts"] = job.options.hosts;
  out["registered"] = job.options.registered;
  out["algorithm"] = job.options.algorithm.empty() ? "auto" : job.options.algorithm;
  out["device"] = job.options.device;
  if (job.on_gpu) {
    out["protocol"] = job.options.protocol.empty() ? "auto" : job.options.protocol;
    out["gpus"] = report.gpus;
    out["copy_gb_s"] = report.copy_gb_s;
  }
  out["min_ratio"] = job.options.min_ratio;
  out["exit_status"] = report.exit_status;
  out["notes"] = report.notes;
  out["results"] = ordered_json::array();
  for (const Row& row : report.rows) {
    ordered_json entry;
    entry["bytes"] = row.bytes;
    entry["count"] = row.what.count;
    entry["type"] = type_name(row.what.type);
    entry["redop"] = reduces(row.what.op) ? ordered_json(red_op_name(row.what.redop)) : nullptr;
    entry["root"] = is_rooted(row.what.op) ? ordered_json(row.what.root) : nullptr;
    entry["library"] = row.label;
    entry["out_of_place"] = to_json(row, row.timing[0], job);
    entry["in_place"] = to_json(row, row.timing[1], job);
    out["results"].push_back(std::move(entry));
  }
  std::ofstream file(path);
  file << out.dump(2) << "\n";
  file.close();
  if (!file) return with_errno("cannot write " + path, errno);
  return std::nullopt;
}

}  // namespace treering::perf
