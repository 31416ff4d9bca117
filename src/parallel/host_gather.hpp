// Small host values of all ranks, on all ranks.
#pragma once

#include <span>
#include <vector>

#include "treering/parallel/comm.hpp"
#include "treering/parallel/compute.hpp"

namespace tr::par {

// Collective; blocks. Rank q's values stand at q * |mine|. Where nothing is moved: mine, from all.
Result<std::vector<double>> gather_over(Comm& comm, Compute& compute, std::span<const double> mine);
// The sum over the ranks, added in rank order: the same bits on every rank.
Result<double> ordered_sum_over(Comm& comm, Compute& compute, double mine);

}  // namespace tr::par
