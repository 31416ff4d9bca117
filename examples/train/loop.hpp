// A whole training on one rank: data, model, trainer, lines, checkpoints, the end's report.
#pragma once

#include <memory>

#include "treering/parallel/comm.hpp"
#include "treering/parallel/compute.hpp"

#include "train/options.hpp"

namespace train {

// Starts the ranks: this process as the launcher says, or threads of it. The program's exit status:
// 0, 1 for an error (said on stderr), 3 below --min-accuracy, 4 if --verify found a difference.
int train_with_backend(const Options& options);

// The same of one rank.
int train_on_rank(const Options& options, std::unique_ptr<tr::par::Comm> world,
                  std::unique_ptr<tr::par::Compute> compute);
std::unique_ptr<tr::par::Compute> compute_for(const Options& options);

}  // namespace train
