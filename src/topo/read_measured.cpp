// A matrix of measured distances (microseconds between ranks, say), one row a line, blanks or
// commas between. Groups follow from it.
#include <algorithm>

#include "topo/check.hpp"
#include "topo/groups.hpp"
#include "topo/read.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

constexpr std::size_t kMaxRanks = 2048;

Result<std::vector<double>> read_rows(std::string_view text, const std::string& name,
                                      std::size_t& n) {
  std::vector<double> values;
  std::size_t rows = 0;
  int number = 0;
  for (std::string_view line : split_lines(text)) {
    ++number;
    std::string words(line.substr(0, line.find('#')));
    std::replace(words.begin(), words.end(), ',', ' ');
    const auto cells = split_words(words);
    if (cells.empty()) continue;
    if (rows == 0) n = cells.size();
    const std::string at = name + ", line " + std::to_string(number);
    if (n < 2 || n > kMaxRanks) {
      return invalid_argument(at + ": a matrix of 2 to " + std::to_string(kMaxRanks) +
                              " columns is needed, not " + std::to_string(n));
    }
    if (cells.size() != n) {
      return invalid_argument(at + " has " + std::to_string(cells.size()) +
                              " numbers, the first row " + std::to_string(n));
    }
    for (std::string_view cell : cells) {
      const auto value = parse_number(cell);
      if (!value || *value < 0) {
        return invalid_argument(at + ": '" + std::string(cell.substr(0, 20)) + "' is no distance");
      }
      values.push_back(*value);
    }
    ++rows;
  }
  if (rows != n) {
    return invalid_argument(name + " has " + std::to_string(rows) + " rows of " +
                            std::to_string(n) + " numbers: a square is needed");
  }
  return values;
}

// Groups from the widest down: each level's groups below those of the next wider one.
void add_groups(Graph& graph, const std::vector<Level>& levels, std::size_t n) {
  std::vector<NodeId> parent(n, 0);
  for (std::size_t i = levels.size(); i-- > 0;) {
    const Level& level = levels[i];
    std::vector<NodeId> nodes(level.groups, kNone);
    for (std::size_t rank = 0; rank < n; ++rank) {
      NodeId& node = nodes[level.group[rank]];
      if (node == kNone) {
        node =
            graph.add(NodeKind::kGroup, "group " + std::to_string(level.group[rank]), parent[rank]);
        graph.at(node).distance_us = level.distance;
        graph.join_to_parent(node, LinkKind::kNetwork);
      }
      parent[rank] = node;
    }
  }
  for (std::size_t rank = 0; rank < n; ++rank) {
    const NodeId id = graph.add(NodeKind::kMachine, "rank " + std::to_string(rank), parent[rank]);
    graph.at(id).number = static_cast<int>(rank);
    graph.join_to_parent(id, LinkKind::kNetwork);
  }
}

}  // namespace

Result<Graph> read_measured(std::string_view text, const std::string& name) {
  std::size_t n = 0;
  TR_ASSIGN_OR_RETURN(const std::vector<double> distances, read_rows(text, name, n));
  Graph graph;
  graph.name = name;
  graph.format = "measured distances";
  graph.add(NodeKind::kCluster, std::to_string(n) + " ranks", kNone);
  add_groups(graph, group_by_distance(distances, n), n);
  finish(graph);
  return graph;
}

}  // namespace treering::topo
