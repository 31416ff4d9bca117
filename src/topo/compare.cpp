#include "topo/compare.hpp"

#include <algorithm>

#include "topo/paths.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

// GPUs in the order of their numbers, by which both descriptions know them.
std::vector<NodeId> gpus_of(const Graph& graph) {
  std::vector<NodeId> gpus = graph.all(NodeKind::kGpu);
  std::stable_sort(gpus.begin(), gpus.end(),
                   [&](NodeId a, NodeId b) { return graph.at(a).number < graph.at(b).number; });
  return gpus;
}

// NCCL's format knows no host bridges, so NODE and PHB are the same to it.
std::string label_of(const Paths& paths, NodeId a, NodeId b) {
  const Path path = paths.best(a, b);
  return path.path == PathClass::kNode ? "PHB" : path_label(path);
}

class Differences {
 public:
  void add(const std::string& example) {
    if (count_++ == 0) first_ = example;
  }
  void report(Graph& graph, const Graph& other, const char* one, const char* many) const {
    if (count_ == 0) return;
    graph.report(FindingKind::kContradiction, other.name + " says otherwise of " +
                                                  std::to_string(count_) + verb(count_, one, many) +
                                                  ": " + first_);
  }

 private:
  std::size_t count_ = 0;
  std::string first_;
};

}  // namespace

void compare(Graph& graph, const Graph& other) {
  const std::vector<NodeId> ours = gpus_of(graph), theirs = gpus_of(other);
  if (ours.size() != theirs.size()) {
    graph.report(FindingKind::kContradiction, other.name + " has " + std::to_string(theirs.size()) +
                                                  " GPUs, " + graph.name + " has " +
                                                  std::to_string(ours.size()));
    return;
  }
  Differences pairs, cpus;
  const Paths paths_here(graph), paths_there(other);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const std::string& name = graph.at(ours[i]).name;
    for (std::size_t j = i + 1; j < ours.size(); ++j) {
      const std::string here = label_of(paths_here, ours[i], ours[j]);
      const std::string there = label_of(paths_there, theirs[i], theirs[j]);
      if (here == there) continue;
      pairs.add(name + " and " + graph.at(ours[j]).name + " are " + here + " here, " + there +
                " there");
    }
    const NodeId near_here = graph.ancestor(ours[i], NodeKind::kNuma);
    const NodeId near_there = other.ancestor(theirs[i], NodeKind::kNuma);
    if (near_here == kNone || near_there == kNone) continue;
    const CpuSet& here = graph.at(near_here).cpus;
    const CpuSet& there = other.at(near_there).cpus;
    if (here.empty() || there.empty() || here == there) continue;
    cpus.add(name + " is near CPUs " + here.to_list() + " here, " + there.to_list() + " there");
  }
  pairs.report(graph, other, " pair of GPUs", " pairs of GPUs");
  cpus.report(graph, other, " GPU's CPUs", " GPUs' CPUs");
}

}  // namespace treering::topo
