#include "topo/xml.hpp"

namespace treering::topo {
namespace {

// What files with another root element are.
std::string kind_of(std::string_view root) {
  if (root == "graphs") {
    return "a graph file of NCCL: rings and trees that its search found, not the machine they are "
           "for. The topology is what NCCL_TOPO_DUMP_FILE writes";
  }
  if (root == "nvidia_smi_log") {
    return "the output of nvidia-smi -q -x, which has no topology. Give that of nvidia-smi topo -m";
  }
  if (root == "topology") return "a file of hwloc";
  if (root == "system") return "a topology file of NCCL";
  return "an XML file of another kind (root element <" + std::string(root) +
         ">); NCCL's have <system>, hwloc's <topology>";
}

}  // namespace

Result<pugi::xml_node> load_xml(pugi::xml_document& document, std::string_view text,
                                const std::string& file, std::string_view root) {
  const pugi::xml_parse_result parsed =
      document.load_buffer(text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!parsed) {
    return invalid_argument(file + " is no complete XML: " + parsed.description() + " (byte " +
                            std::to_string(parsed.offset) + " of " + std::to_string(text.size()) +
                            "); is it cut off?");
  }
  const pugi::xml_node element = document.document_element();
  if (element.name() != root) {
    return invalid_argument(file + " is " + kind_of(element.name()));
  }
  return element;
}

}  // namespace treering::topo
