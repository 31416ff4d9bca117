// Our own library as a worker of `treering perf`.
#pragma once

namespace treering::perf {

struct WorkerOptions {
  bool registered = false;
  bool cuda = false;
  int hosts = 1;    // that the ranks of `treering run` play, equal parts of them each
  int threads = 0;  // not 0: all ranks, as threads of this process
};

// The hidden subcommand `treering perf-worker`: joins the communicator of the environment, which
// `treering run` made, or makes one of threads, and serves the driver. Returns the exit status.
int run_treering_worker(const WorkerOptions& options);

}  // namespace treering::perf
