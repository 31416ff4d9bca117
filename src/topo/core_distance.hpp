// How far cores are from each other: the round trip of a cache line between two pinned threads.
#pragma once

#include <vector>

#include "core/deadline.hpp"
#include "topo/graph.hpp"

namespace treering::topo {

// Pairs that the deadline leaves no time for, or whose CPUs this process may not use, stay 0.
CoreDistances measure_core_distances(const std::vector<int>& cpus, Deadline deadline);

// At most `most` of the cores, in neighbouring pairs spread over all: near and far are both seen.
std::vector<int> sample_cores(const std::vector<int>& cores, std::size_t most);

}  // namespace treering::topo
