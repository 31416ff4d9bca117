// XML documents, by pugixml: what both XML readers need of it.
#pragma once

#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "core/status.hpp"

namespace treering::topo {

// The root element, whose name must be `root`. An error says where the file breaks off, or what
// kind of file it is instead.
Result<pugi::xml_node> load_xml(pugi::xml_document& document, std::string_view text,
                                const std::string& file, std::string_view root);

}  // namespace treering::topo
