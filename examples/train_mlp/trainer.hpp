// Data-parallel training from start to end: every rank has all parameters, works on its share of
// each batch, and adds its gradients to the others'.
#pragma once

#include "treering/treering.hpp"

#include "compute/backend.hpp"
#include "train_mlp/options.hpp"

namespace train {

// Collective over comm; every rank with the same options. The backend's device was there before
// comm. Rank 0 prints. The exit status: 0, or 1 when something that the run promises does not hold;
// errors of the library end the program.
int run(const Options& options, compute::Backend& backend, tr::Communicator& comm);

}  // namespace train
