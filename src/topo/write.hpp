// Writers. NCCL's XML can be given to NCCL (NCCL_TOPO_FILE); our JSON says all that we know, and
// can be read back.
#pragma once

#include <string>

#include "core/status.hpp"
#include "topo/graph.hpp"

namespace treering::topo {

// Refuses graphs without a machine's inside: NCCL's format cannot say them.
Result<std::string> to_nccl_xml(const Graph& graph);
std::string to_json(const Graph& graph);

}  // namespace treering::topo
