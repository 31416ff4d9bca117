// A graph as text.
#include "topo/text.hpp"

#include <algorithm>
#include <cstdio>

#include "cli/topo/view.hpp"

namespace treering::topo_view {
namespace {

using namespace topo;

constexpr std::size_t kMostColumns = 24;

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

// Depth first. Cores are summed up on the line of their cache or NUMA node; long lists of machines
// are cut.
class Tree {
 public:
  explicit Tree(const Graph& graph) : graph_(graph), children_(graph.nodes.size()) {
    for (NodeId id = 1; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
      children_[static_cast<std::size_t>(graph.at(id).parent)].push_back(id);
    }
  }

  std::string draw() {
    show(0, 0);
    std::string text;
    std::size_t width = 0;
    for (const auto& [name, what] : lines_) width = std::max(width, name.size());
    width = std::min<std::size_t>(width, 40) + 2;
    for (const auto& [name, what] : lines_) {
      text += what.empty() ? name : padded(name, width) + what;
      text += "\n";
    }
    return text;
  }

 private:
  void show(NodeId id, std::size_t depth) {
    const std::string indent(depth * 2, ' ');
    std::string what = describe_node(graph_, id);
    std::size_t cores = 0, machines = 0, left_out = 0;
    std::vector<NodeId> below;
    constexpr std::size_t kMostMachines = 16;
    for (NodeId child : children_[static_cast<std::size_t>(id)]) {
      const NodeKind kind = graph_.at(child).kind;
      if (kind == NodeKind::kCore)
        ++cores;
      else if (kind == NodeKind::kMachine && ++machines > kMostMachines)
        ++left_out;
      else
        below.push_back(child);
    }
    if (cores > 0) what += (what.empty() ? "" : ", ") + in_words(cores, "core");
    lines_.emplace_back(indent + graph_.at(id).name, what);
    for (NodeId child : below) show(child, depth + 1);
    if (left_out > 0) {
      lines_.emplace_back(indent + "  and " + in_words(left_out, "machine") + " more", "");
    }
  }

  const Graph& graph_;
  std::vector<std::vector<NodeId>> children_;
  std::vector<std::pair<std::string, std::string>> lines_;
};

// Links beside the tree, one line for all that are alike from one node.
std::string cross_links(const Graph& graph) {
  std::string text;
  std::vector<std::vector<LinkId>> from(graph.nodes.size());
  for (LinkId id = 0; id < static_cast<LinkId>(graph.links.size()); ++id) {
    const Link& link = graph.link(id);
    if (graph.at(link.a).uplink != id) from[static_cast<std::size_t>(link.a)].push_back(id);
  }
  // What: to whom, and how; then from whom.
  std::vector<std::pair<std::pair<std::string, std::string>, std::vector<NodeId>>> lines;
  for (const std::vector<LinkId>& links : from) {
    std::vector<std::pair<std::string, std::vector<NodeId>>> alike;
    for (LinkId id : links) {
      const std::string what = describe_link(graph.link(id));
      const auto it = std::find_if(alike.begin(), alike.end(),
                                   [&](const auto& entry) { return entry.first == what; });
      if (it != alike.end())
        it->second.push_back(graph.link(id).b);
      else
        alike.push_back({what, {graph.link(id).b}});
    }
    for (const auto& [what, ends] : alike) {
      const std::pair<std::string, std::string> line = {join_names(graph, ends), what};
      if (lines.empty() || lines.back().first != line) lines.push_back({line, {}});
      lines.back().second.push_back(graph.link(links[0]).a);
    }
  }
  for (const auto& [line, starts] : lines) {
    text += "  " + padded(join_names(graph, starts) + " - " + line.first, 38) + "  " + line.second +
            "\n";
  }
  return text.empty() ? "" : "\nLinks beside the tree\n" + text;
}

std::string pair_matrix(const Graph& graph) {
  const std::vector<NodeId> ends = matrix_endpoints(graph, kMostColumns);
  const std::size_t all = graph.endpoints().size();
  if (ends.size() < 2) {
    if (all < 2) return "";
    return "\n" + std::to_string(all) +
           " endpoints: too many for a matrix here; --json has all links\n";
  }
  std::size_t width = 9;
  bool assumed = false;
  for (NodeId id : ends) width = std::max(width, graph.at(id).name.size() + 1);
  std::string text = std::string(width, ' ');
  for (NodeId id : ends) text += " " + padded(graph.at(id).name, width - 1);
  text += "\n";
  const Paths paths(graph);
  for (NodeId row : ends) {
    text += padded(graph.at(row).name, width);
    for (NodeId column : ends) {
      const Path path = paths.best(row, column);
      const bool guess = path.source == Source::kAssumed;
      assumed = assumed || guess;
      text += " " + padded(pair_text(path) + (guess ? "*" : ""), width - 1);
    }
    text += "\n";
  }
  std::string title = "\nPairs: path, and GB/s in one direction if alone";
  if (assumed) title += " (*: rests on an assumption)";
  if (ends.size() < all) title += "; GPUs only";
  return title + "\n" + text;
}

std::string core_matrix(const Graph& graph) {
  const CoreDistances& it = graph.distances;
  if (it.cpus.empty()) return "";
  std::string text = "\nCores: round trip of a cache line, ns\n      ";
  char cell[32];
  for (int cpu : it.cpus) {
    std::snprintf(cell, sizeof cell, "%6d", cpu);
    text += cell;
  }
  text += "\n";
  for (std::size_t i = 0; i < it.cpus.size(); ++i) {
    std::snprintf(cell, sizeof cell, "%6d", it.cpus[i]);
    text += cell;
    for (std::size_t j = 0; j < it.cpus.size(); ++j) {
      if (it.between(i, j) > 0)
        std::snprintf(cell, sizeof cell, "%6.0f", it.between(i, j));
      else
        std::snprintf(cell, sizeof cell, "%6s", i == j ? "-" : "?");
      text += cell;
    }
    text += "\n";
  }
  return text;
}

std::string findings(const Graph& graph) {
  if (graph.findings.empty()) return "\nNothing is missing or wrong.\n";
  std::string text = "\nFindings\n";
  for (const Finding& finding : graph.findings) {
    text += "  " + padded(severity_name(severity_of(finding.kind)), 10) + "  " +
            finding_name(finding.kind) + ": " + finding.text + "\n";
  }
  return text;
}

}  // namespace

std::string to_text(const Graph& graph) {
  return graph.name + ": " + graph.format + "; " + summary(graph) + "\n\n" + Tree(graph).draw() +
         cross_links(graph) + pair_matrix(graph) + core_matrix(graph) + findings(graph);
}

}  // namespace treering::topo_view
