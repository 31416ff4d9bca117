// Interfaces, names and ports, for gather.
#pragma once

#include "cli/doctor/facts.hpp"

namespace treering::doctor {

// Connects to itself by every address, with a second for each; store_port is tried too, if not 0.
void gather_network(Facts& facts, int store_port);

}  // namespace treering::doctor
