// What `treering topo` shows of a graph: as text, and as a page.
#pragma once

#include <string>
#include <vector>

#include "core/status.hpp"
#include "topo/graph.hpp"
#include "topo/paths.hpp"
#include "topo/search.hpp"

namespace treering::topo_view {

// The tree, links beside it, the matrix of pairs, findings.
std::string to_text(const topo::Graph& graph);
// One file, nothing loaded from elsewhere; refuses more endpoints than can be drawn.
Result<std::string> to_html(const topo::Graph& graph, const topo::SearchOptions& options);
// Rings and trees: how fast, which way, and what limits them.
std::string to_text(const topo::Graph& graph, const topo::RingPlan& rings,
                    const topo::TreePlan& trees);

// Shared by both.
std::string describe_node(const topo::Graph& graph, topo::NodeId id);  // "CPUs 0-23, AuthenticAMD"
std::string describe_link(const topo::Link& link);                     // "16 GT/s x16, 24 GB/s"
// The endpoints of a matrix that fits: all, or the GPUs alone, or none.
std::vector<topo::NodeId> matrix_endpoints(const topo::Graph& graph, std::size_t most);
std::string pair_text(const topo::Path& path);                     // "NV12 240"
std::string in_words(std::size_t count, const std::string& what);  // "1 GPU", "8 GPUs"
std::string summary(const topo::Graph& graph);                     // "8 GPUs, 4 NICs, 2 NUMA nodes"

std::string ring_text(const topo::Graph& graph, const topo::Ring& ring);  // "GPU0 - GPU1 - GPU0"
std::string tree_text(const topo::Graph& graph, const topo::Tree& tree);  // "GPU1 (GPU0, GPU2)"
std::string rings_title(const topo::RingPlan& plan);                      // "4 rings, 72 GB/s"
std::string trees_title(const topo::TreePlan& plan);

}  // namespace treering::topo_view
