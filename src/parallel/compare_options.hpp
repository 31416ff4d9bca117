// Have all ranks been given the same training?
#pragma once

#include "treering/parallel/trainer.hpp"

namespace tr::par {

// Collective over world. TR_MISMATCH, on all ranks, names a rank and what it has otherwise than
// rank 0: with another seed or learning rate on one shard, say, a training would run and be wrong.
Status compare_options(Comm& world, Compute& compute, const Model& model,
                       const TrainerOptions& options);

}  // namespace tr::par
