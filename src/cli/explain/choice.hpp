// How a call would be chosen for: the algorithms that could serve it, what they would take, and why
// one of them wins.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.hpp"
#include "core/types.hpp"

namespace treering::explain {

// On host memory of one machine. `bytes` is the vector's length S (where each rank has a part, all
// parts together). `tuning_file`: what treering tune stored; empty: predictions are formulas'
// only.
Result<std::string> explain_choice(Collective collective, int ranks, std::uint64_t bytes,
                                   const std::string& tuning_file);

}  // namespace treering::explain
