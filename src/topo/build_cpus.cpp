#include <algorithm>

#include "topo/bandwidth.hpp"
#include "topo/build.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

bool within(const CpuSet& inner, const CpuSet& outer) {
  if (inner.empty()) return false;
  CpuSet both = outer;
  both.add(inner);
  return both == outer;
}

// The deepest of `nodes` whose CPUs include all of these.
NodeId holder(const Graph& graph, const std::vector<NodeId>& nodes, const CpuSet& cpus,
              NodeId otherwise) {
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    if (within(cpus, graph.at(*it).cpus)) return *it;
  }
  return otherwise;
}

std::string cache_name(const CacheFact& cache) {
  std::string name = "L" + std::to_string(cache.level);
  if (cache.bytes >= 1 << 20)
    name += " " + std::to_string(cache.bytes >> 20) + " MiB";
  else if (cache.bytes > 0)
    name += " " + std::to_string(cache.bytes >> 10) + " KiB";
  return name;
}

// NUMA nodes, those of memory alone left out: they share the CPUs of another.
std::vector<NodeId> add_numa(Graph& graph, NodeId machine, const CpuFacts& facts,
                             const std::vector<NodeId>& packages) {
  std::vector<NodeId> numa;
  std::string memory_only;
  for (const NumaFact& fact : facts.numa) {
    const bool again = std::any_of(numa.begin(), numa.end(),
                                   [&](NodeId id) { return graph.at(id).cpus == fact.cpus; });
    if (fact.cpus.empty() || again) {
      memory_only += (memory_only.empty() ? "" : ", ") + std::to_string(fact.number);
      continue;
    }
    const NodeId id = graph.add(NodeKind::kNuma, "NUMA " + std::to_string(fact.number),
                                holder(graph, packages, fact.cpus, machine));
    graph.at(id).number = fact.number;
    graph.at(id).cpus = fact.cpus;
    numa.push_back(id);
  }
  if (!memory_only.empty()) {
    graph.report(FindingKind::kNumaGap,
                 "NUMA node " + memory_only + " has no CPUs of its own: memory only, left out");
  }
  if (numa.empty()) {
    numa.push_back(graph.add(NodeKind::kNuma, "NUMA 0", machine));
    graph.at(numa[0]).number = 0;
    for (const NumaFact& core : facts.cores) graph.at(numa[0]).cpus.add(core.cpus);
    graph.report(FindingKind::kNumaUnknown, "no NUMA nodes are shown; one is assumed");
  }
  for (NodeId id : numa) {
    Node& node = graph.at(id);
    node.cpu_arch = facts.arch;
    node.cpu_vendor = facts.vendor;
    node.cpu_family = facts.family;
    node.cpu_model = facts.model;
  }
  return numa;
}

}  // namespace

void join_numa_nodes(Graph& graph, const std::vector<NodeId>& numa) {
  if (numa.size() > kMaxNumaNodes) {
    graph.report(FindingKind::kBadValue, std::to_string(numa.size()) +
                                             " NUMA nodes: more than any machine has; links "
                                             "between them are left out");
    return;
  }
  for (std::size_t i = 0; i < numa.size(); ++i) {
    for (std::size_t j = i + 1; j < numa.size(); ++j) {
      graph.join(numa[i], numa[j], LinkKind::kSocket);
    }
  }
}

void add_cpus(Graph& graph, NodeId machine, const CpuFacts& facts) {
  std::vector<NodeId> packages;
  for (const NumaFact& fact : facts.packages) {
    // A package is worth a node only if NUMA nodes can hang below it.
    const bool holds = std::any_of(facts.numa.begin(), facts.numa.end(),
                                   [&](const NumaFact& it) { return within(it.cpus, fact.cpus); });
    if (!holds) continue;
    packages.push_back(
        graph.add(NodeKind::kPackage, "package " + std::to_string(fact.number), machine));
    graph.at(packages.back()).number = fact.number;
    graph.at(packages.back()).cpus = fact.cpus;
  }
  std::vector<NodeId> holders = add_numa(graph, machine, facts, packages);
  join_numa_nodes(graph, holders);
  const NodeId first = holders.front();
  std::vector<CacheFact> caches = facts.caches;
  std::stable_sort(caches.begin(), caches.end(),
                   [](const CacheFact& a, const CacheFact& b) { return a.level > b.level; });
  for (const CacheFact& cache : caches) {
    const NodeId id =
        graph.add(NodeKind::kCache, cache_name(cache), holder(graph, holders, cache.cpus, first));
    Node& node = graph.at(id);
    node.cpus = cache.cpus;
    node.cache_bytes = cache.bytes;
    node.cache_level = cache.level;
    holders.push_back(id);
  }
  for (const NumaFact& core : facts.cores) {
    const NodeId id = graph.add(NodeKind::kCore, "core " + std::to_string(core.number),
                                holder(graph, holders, core.cpus, first));
    graph.at(id).number = core.number;
    graph.at(id).cpus = core.cpus;
  }
}

int sm_of_model(const std::string& model) {
  struct Row {
    const char* part;
    int sm;
  };
  // Longer names before those they contain.
  static constexpr Row kRows[] = {
      {"P100", 60},   {"V100", 70},  {"T4", 75},    {"A100", 80},   {"A800", 80}, {"A30", 80},
      {"A40", 86},    {"A10", 86},   {"A6000", 86}, {"L40", 89},    {"L20", 89},  {"L4", 89},
      {"4090", 89},   {"H100", 90},  {"H200", 90},  {"H800", 90},   {"H20", 90},  {"GH200", 90},
      {"GB200", 100}, {"B200", 100}, {"B100", 100}, {"GB300", 103}, {"B300", 103}};
  for (const Row& row : kRows) {
    if (model.find(row.part) != std::string::npos) return row.sm;
  }
  return 0;
}

}  // namespace treering::topo
