// Built where pugixml is missing.
#include "topo/read.hpp"

namespace treering::topo {
namespace {

Status no_xml(const std::string& name) {
  return unsupported(name +
                     " is XML, and this build cannot read that: it was configured without "
                     "pugixml (libpugixml-dev)");
}

}  // namespace

Result<Graph> read_nccl_xml(std::string_view, const std::string& name) { return no_xml(name); }
Result<Graph> read_hwloc_xml(std::string_view, const std::string& name) { return no_xml(name); }

}  // namespace treering::topo
