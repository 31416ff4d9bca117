// Text inside of the page.
#pragma once

#include <string>

#include "topo/search.hpp"

namespace treering::topo_view {

std::string escaped(const std::string& text);
std::string shortened(const std::string& text, std::size_t most);
std::string number(double value);  // "12.5"

// The part of the page on rings and trees.
std::string rings_section(const topo::Graph& graph, const topo::RingPlan& rings,
                          const topo::TreePlan& trees);

}  // namespace treering::topo_view
