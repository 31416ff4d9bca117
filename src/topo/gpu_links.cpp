#include "topo/gpu_links.hpp"

#include <algorithm>
#include <map>

#include "topo/bandwidth.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

std::string links(int count, LinkKind kind) {
  return std::to_string(count) + " " + link_kind_name(kind) + (count == 1 ? " link" : " links");
}

NodeId root_of(const Graph& graph, NodeId gpu) {
  const NodeId machine = graph.ancestor(gpu, NodeKind::kMachine);
  return machine == kNone ? 0 : machine;
}

NodeId nvswitch_of(Graph& graph, NodeId machine) {
  for (NodeId id : graph.all(NodeKind::kNvSwitch)) {
    if (graph.at(id).parent == machine) return id;
  }
  return graph.add(NodeKind::kNvSwitch, "NVSwitch", machine);
}

// Counts by ordered pair; what is nonsense by itself is reported and left out.
using Counts = std::map<std::pair<NodeId, NodeId>, std::pair<int, LinkKind>>;

struct SelfLinks {
  std::vector<NodeId> gpus;
  int count = 0;
  LinkKind kind = LinkKind::kNvlink;
};

void report_self_links(Graph& graph, const SelfLinks& self) {
  if (self.gpus.empty()) return;
  const bool one = self.gpus.size() == 1;
  graph.report(FindingKind::kSelfLink,
               links(self.count, self.kind) + " of " + join_names(graph, self.gpus) +
                   (one ? " lead back to the GPU itself" : " each lead back to the GPU itself") +
                   "; the true peers are unknown, so these links are left out");
}

Counts collect(Graph& graph, const std::vector<GpuLink>& lists) {
  Counts counts;
  SelfLinks self;
  std::map<std::string, std::vector<NodeId>> dangling;
  for (const GpuLink& list : lists) {
    const std::string& name = graph.at(list.from).name;
    if (list.count <= 0 || list.count > kMaxNvlinks) {
      graph.report(FindingKind::kBadValue, name + " claims " + links(list.count, list.kind) +
                                               " to " + list.target +
                                               "; no GPU has that, so they are left out");
      continue;
    }
    if (list.to_switch) {
      const NodeId nvswitch = nvswitch_of(graph, root_of(graph, list.from));
      auto& entry = counts[{list.from, nvswitch}];
      entry = {std::min(entry.first + list.count, kMaxNvlinks), list.kind};
    } else if (list.to == list.from) {
      self.gpus.push_back(list.from);
      self.count = list.count;
      self.kind = list.kind;
    } else if (list.to == kNone) {
      dangling[list.target].push_back(list.from);
    } else {
      auto& entry = counts[{list.from, list.to}];
      entry = {std::min(entry.first + list.count, kMaxNvlinks), list.kind};
    }
  }
  report_self_links(graph, self);
  for (const auto& [target, from] : dangling) {
    graph.report(FindingKind::kDanglingLink, "links of " + join_names(graph, from) + " lead to " +
                                                 target + ", which is not described; left out");
  }
  return counts;
}

// Both ends should say the same; the smaller count is what surely exists.
int agreed_count(Graph& graph, NodeId a, NodeId b, int forward, int backward, LinkKind kind) {
  if (forward == backward) return forward;
  const std::string pair = graph.at(std::min(a, b)).name + " and " + graph.at(std::max(a, b)).name;
  if (forward == 0 || backward == 0) {
    graph.report(FindingKind::kOneSidedLink, "only one of " + pair + " lists the " +
                                                 links(forward + backward, kind) +
                                                 " between them; assumed to be there");
    return forward + backward;
  }
  graph.report(FindingKind::kOneSidedLink,
               pair + " disagree on the " + std::string(link_kind_name(kind)) +
                   " links between them (" + std::to_string(forward) + " and " +
                   std::to_string(backward) + "); the smaller number is assumed");
  return std::min(forward, backward);
}

}  // namespace

void connect_gpus(Graph& graph, const std::vector<GpuLink>& lists) {
  const Counts counts = collect(graph, lists);
  for (const auto& [pair, entry] : counts) {
    const auto [from, to] = pair;
    const auto [count, kind] = entry;
    int agreed = count;
    if (graph.at(to).kind == NodeKind::kGpu) {
      const auto back = counts.find({to, from});
      if (back != counts.end() && from > to) continue;  // made at the other end
      agreed =
          agreed_count(graph, from, to, count, back == counts.end() ? 0 : back->second.first, kind);
    }
    graph.link(graph.join(from, to, kind)).width = agreed;
  }
}

}  // namespace treering::topo
