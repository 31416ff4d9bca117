// Helpers of the topology tests.
#pragma once

#include <gtest/gtest.h>
#include <set>
#include <string>

#include "topo/paths.hpp"
#include "topo/read.hpp"
#include "topo/text.hpp"

namespace treering::topo {

std::string data(const std::string& name);  // of a file in data/

inline Graph graph_of(const std::string& text, const std::string& name = "test") {
  Result<Graph> graph = read_text(text, name);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? std::move(graph).value() : Graph();
}

inline std::string refusal(const std::string& text) {
  const Result<Graph> graph = read_text(text, "test");
  return graph.ok() ? "" : graph.status().message();
}

inline NodeId node_named(const Graph& graph, const std::string& name) {
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    if (graph.at(id).name == name) return id;
  }
  ADD_FAILURE() << "no node " << name;
  return 0;
}

// "NV12 240": as in the matrix that users see.
inline std::string pair_of(const Graph& graph, const std::string& a, const std::string& b) {
  const Path path = best_path(graph, node_named(graph, a), node_named(graph, b));
  return path_label(path) + " " + format_gb_s(path.gb_s);
}

inline std::string text_of(const Graph& graph, FindingKind kind) {
  for (const Finding& finding : graph.findings) {
    if (finding.kind == kind) return finding.text;
  }
  return "";
}

// Names of the findings of this severity, each once.
inline std::set<std::string> findings_of(const Graph& graph, Severity severity) {
  std::set<std::string> names;
  for (const Finding& finding : graph.findings) {
    if (severity_of(finding.kind) == severity) names.insert(finding_name(finding.kind));
  }
  return names;
}

// Replaces all; fails if there is nothing to replace.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "no '" << from << "' to replace";
  for (; at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace treering::topo
