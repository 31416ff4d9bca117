// Readers of descriptions: by content, whatever the file is called.
#pragma once

#include <string>
#include <string_view>

#include "core/status.hpp"
#include "topo/graph.hpp"

namespace treering::topo {

// Everything that can be read. An error says what kind of file it is, and what is wrong with it.
Result<Graph> read_file(const std::string& path);
Result<Graph> read_text(std::string_view text, const std::string& name);

// One reader a format; read_text tells them apart.
Result<Graph> read_nccl_xml(std::string_view text, const std::string& name);
Result<Graph> read_hwloc_xml(std::string_view text, const std::string& name);
Result<Graph> read_smi_matrix(std::string_view text, const std::string& name);
Result<Graph> read_cluster_yaml(std::string_view text, const std::string& name);
Result<Graph> read_measured(std::string_view text, const std::string& name);
Result<Graph> read_json(std::string_view text, const std::string& name);

// Larger files are no topologies.
inline constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;

}  // namespace treering::topo
