// CPUs, caches and NUMA nodes from /sys/devices/system.
#include <map>

#include "topo/live_parts.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

constexpr const char* kCpus = "sys/devices/system/cpu/";
constexpr const char* kNodes = "sys/devices/system/node/";

// "32768K", "33792K", "1M"
std::int64_t cache_bytes(const std::string& text) {
  if (text.empty()) return 0;
  const char unit = text.back();
  const bool scaled = unit == 'K' || unit == 'M';
  const auto value = parse_int(std::string_view(text).substr(0, text.size() - scaled));
  if (!value || *value < 0 || *value > 1 << 30) return 0;
  return *value << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
}

int number_of(const std::string& text, int otherwise) {
  const auto value = parse_int(text);
  return value && *value >= 0 && *value < CpuSet::kMaxCpus ? static_cast<int>(*value) : otherwise;
}

// What is shared by several CPUs, once: keyed by its first.
void read_caches(const Sysfs& sysfs, const std::string& cpu,
                 std::map<std::pair<int, int>, CacheFact>& caches) {
  for (const std::string& index : sysfs.list(cpu + "/cache")) {
    const std::string cache = cpu + "/cache/" + index + "/";
    const int level = number_of(sysfs.line(cache + "level"), 0);
    if (level < 2 || level > 4 || sysfs.line(cache + "type") == "Instruction") continue;
    const auto cpus = CpuSet::from_list(sysfs.line(cache + "shared_cpu_list"));
    if (!cpus || cpus->count() < 2 || (level == 2 && cpus->count() == 2)) continue;
    caches.try_emplace({level, cpus->cpus().front()},
                       CacheFact{level, cache_bytes(sysfs.line(cache + "size")), *cpus});
  }
}

// Returns whether this is a virtual machine's.
bool read_cpuinfo(const Sysfs& sysfs, CpuFacts& facts) {
  bool is_virtual = false;
  const std::string text = sysfs.text("proc/cpuinfo");
  for (std::string_view line : split_lines(text)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      if (trim(line).empty() && !facts.arch.empty()) break;  // one CPU is enough
      continue;
    }
    const std::string_view key = trim(line.substr(0, colon));
    const std::string value(trim(line.substr(colon + 1)));
    if (key == "vendor_id") {
      facts.vendor = value;
      facts.arch = "x86_64";
    } else if (key == "cpu family") {
      facts.family = number_of(value, 0);
    } else if (key == "model") {
      facts.model = number_of(value, 0);
    } else if (key == "CPU implementer") {
      facts.arch = "arm64";
    } else if (key == "cpu" && starts_with(value, "POWER")) {
      facts.arch = "ppc64";
    } else if (key == "flags") {
      is_virtual = (" " + value + " ").find(" hypervisor ") != std::string::npos;
    }
  }
  return is_virtual;
}

}  // namespace

CpuFacts read_cpus(const Sysfs& sysfs, Graph& graph) {
  CpuFacts facts;
  if (read_cpuinfo(sysfs, facts)) {
    graph.report(FindingKind::kHidden,
                 "this is a virtual machine: NUMA nodes, caches and PCI are as it shows them");
  }
  std::map<int, CpuSet> packages;
  std::map<std::pair<int, int>, NumaFact> cores;
  std::map<std::pair<int, int>, CacheFact> caches;
  const auto online = CpuSet::from_list(sysfs.line(std::string(kCpus) + "online"));
  if (!online || online->empty()) {
    graph.report(FindingKind::kHidden,
                 "/sys/devices/system/cpu does not show which CPUs there are");
  }
  for (int cpu : online ? online->cpus() : std::vector<int>()) {
    const std::string path = kCpus + ("cpu" + std::to_string(cpu));
    const int package = number_of(sysfs.line(path + "/topology/physical_package_id"), 0);
    const int core = number_of(sysfs.line(path + "/topology/core_id"), cpu);
    packages[package].add(cpu);
    NumaFact& fact = cores[{package, core}];
    fact.number = core;
    fact.cpus.add(cpu);
    read_caches(sysfs, path, caches);
  }
  for (const auto& [number, cpus] : packages) facts.packages.push_back({number, cpus});
  for (const auto& [key, core] : cores) facts.cores.push_back(core);
  for (const auto& [key, cache] : caches) facts.caches.push_back(cache);
  const auto nodes = CpuSet::from_list(sysfs.line(std::string(kNodes) + "online"));
  for (int node : nodes ? nodes->cpus() : std::vector<int>()) {
    const std::string list = sysfs.line(kNodes + ("node" + std::to_string(node)) + "/cpulist");
    if (const auto cpus = CpuSet::from_list(list)) facts.numa.push_back({node, *cpus});
  }
  return facts;
}

}  // namespace treering::topo
