// Checks of the links between GPUs: islands, uneven and missing links.
#include <algorithm>
#include <map>

#include "topo/check.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

bool is_gpu_link(const Link& link) {
  return link.kind == LinkKind::kNvlink || link.kind == LinkKind::kXgmi;
}

// Number of links of each GPU, and which other node it shares an island with.
struct Islands {
  std::map<NodeId, NodeId> leader;
  std::map<NodeId, int> links;

  NodeId find(NodeId id) {
    while (leader[id] != id) id = leader[id] = leader[leader[id]];
    return id;
  }
};

Islands islands_of(const Graph& graph, const std::vector<NodeId>& gpus) {
  Islands islands;
  for (NodeId id : gpus) islands.leader[id] = id;
  for (NodeId id : graph.all(NodeKind::kNvSwitch)) islands.leader[id] = id;
  for (const Link& link : graph.links) {
    if (!is_gpu_link(link) || !islands.leader.count(link.a) || !islands.leader.count(link.b)) {
      continue;
    }
    islands.leader[islands.find(link.a)] = islands.find(link.b);
    islands.links[link.a] += link.width;
    islands.links[link.b] += link.width;
  }
  return islands;
}

void check_islands(Graph& graph, const std::vector<NodeId>& gpus, Islands& islands) {
  std::map<NodeId, std::vector<NodeId>> groups;
  for (NodeId gpu : gpus) groups[islands.find(gpu)].push_back(gpu);
  if (groups.size() < 2) return;
  std::string text;
  for (const auto& [leader, members] : groups) {
    text += (text.empty() ? "" : "; ") + join_names(graph, members);
  }
  graph.report(FindingKind::kIslands, "the GPUs' links leave " + std::to_string(groups.size()) +
                                          " islands: " + text +
                                          "; between them data crosses PCIe or the CPUs");
}

// A GPU with fewer links than most others of its machine lacks some.
void check_missing(Graph& graph, const std::vector<NodeId>& gpus, const Islands& islands) {
  std::map<int, std::vector<NodeId>> by_count;
  for (NodeId gpu : gpus) {
    const auto it = islands.links.find(gpu);
    by_count[it == islands.links.end() ? 0 : it->second].push_back(gpu);
  }
  const auto most = std::find_if(by_count.begin(), by_count.end(), [&](const auto& entry) {
    return entry.second.size() * 2 > gpus.size();
  });
  if (most == by_count.end()) return;  // halves that differ are built so
  for (const auto& [count, members] : by_count) {
    if (count >= most->first) continue;
    graph.report(FindingKind::kMissingLink,
                 join_names(graph, members) + (members.size() == 1 ? " has " : " have ") +
                     std::to_string(count) + " links to other GPUs, where most have " +
                     std::to_string(most->first) + ": missing or switched off");
  }
}

void check_uneven(Graph& graph, const std::vector<NodeId>& gpus) {
  std::map<int, int> widths;
  for (const Link& link : graph.links) {
    if (!is_gpu_link(link)) continue;
    if (std::find(gpus.begin(), gpus.end(), link.a) != gpus.end()) ++widths[link.width];
  }
  if (widths.size() < 2) return;
  std::string text;
  for (const auto& [width, pairs] : widths) {
    text += (text.empty() ? "" : ", ") + std::to_string(pairs) + " of " + std::to_string(width);
  }
  graph.report(FindingKind::kUnevenLinks, "links between GPUs differ in width: " + text + " links");
}

}  // namespace

void check_gpu_links(Graph& graph) {
  std::map<NodeId, std::vector<NodeId>> machines;
  for (NodeId gpu : graph.all(NodeKind::kGpu)) {
    machines[graph.ancestor(gpu, NodeKind::kMachine)].push_back(gpu);
  }
  for (const auto& [machine, gpus] : machines) {
    if (gpus.size() > 1 && gpus.size() % 2 != 0) {
      graph.report(FindingKind::kOddGpus,
                   std::to_string(gpus.size()) + " GPUs, an odd number: no pairwise halving");
    }
    Islands islands = islands_of(graph, gpus);
    if (islands.links.empty()) continue;
    check_islands(graph, gpus, islands);
    check_missing(graph, gpus, islands);
    check_uneven(graph, gpus);
  }
}

}  // namespace treering::topo
