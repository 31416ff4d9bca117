// What all ranks of a group must know alike: did anyone fail, and who said what.
#pragma once

#include "treering/parallel/comm.hpp"
#include "treering/parallel/compute.hpp"

namespace tr::par {

// Collective, on host values; in place. Blocks.
Status sum_over(Comm& comm, Compute& compute, std::span<double> values);
// Collective. Failures on all ranks, if any has one: this rank's own, else that of the highest that
// has one: "rank 3: <message>".
Status agree(Comm& comm, Compute& compute, const Status& mine);

}  // namespace tr::par
