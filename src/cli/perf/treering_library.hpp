// Our own library as a worker of `treering perf`.
#pragma once

namespace treering::perf {

// The hidden subcommand `treering perf-worker`, started by `treering run`: joins the communicator
// of the environment and serves the driver. Returns the exit status.
int run_treering_worker(bool registered);

}  // namespace treering::perf
