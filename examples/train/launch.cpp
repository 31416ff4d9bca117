// Who starts the ranks, and on what they compute.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "device.hpp"
#include "must.hpp"
#include "train/loop.hpp"

namespace train {

using example::must;
using namespace tr::par;

std::unique_ptr<Compute> compute_for(const Options& options) {
  if (options.backend == "count") return must(make_host_compute("dry"));
  std::string gemm = options.gemm;
  if (options.device == "host" && gemm == "auto") gemm = have_openblas() ? "openblas" : "ref";
  // Ranks that are threads share the first GPU: their communicator was made on it.
  const int number = options.backend == "threads" ? 0 : example::local_rank();
  return must(example::make_device(options.device, gemm, number));
}

namespace {

int train_on_threads(const Options& options, std::vector<std::unique_ptr<Comm>> comms) {
  std::vector<int> status(comms.size(), 1);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r, comm = std::move(comms[r])]() mutable {
      status[r] = train_on_rank(options, std::move(comm), compute_for(options));
    });
  }
  for (std::thread& t : threads) t.join();
  return *std::max_element(status.begin(), status.end());
}

}  // namespace

int train_with_backend(const Options& options) {
  if (options.print_config) return 0;
  const MeshShape& mesh = options.trainer.mesh;
  const int ranks = options.ranks > 0 ? options.ranks : std::max(1, mesh.dp) * mesh.pp * mesh.tp;
  if (options.timeout_s > 0) {
    ::setenv("TR_TIMEOUT_S", std::to_string(options.timeout_s).c_str(), 1);
  }
  if (options.device == "cuda") {
    // Kernels are loaded at once: to load one later may wait for a rank's on the same GPU, that
    // waits for this one. And each stream has a queue of its own there.
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    // All groups of all ranks must find room on the GPU that threads share.
    if (options.backend == "threads") ::setenv("TR_CUDA_CHANNELS", "1", 0);
  }
  if (options.backend == "count") {
    const bool is_real = !options.save.empty() || !options.load.empty() || !options.trace.empty() ||
                         options.verify || !options.inject.empty();
    if (is_real) {
      must(tr::Status(tr::Error{TR_INVALID_ARGUMENT,
                                "--backend count trains nothing: without --save, --load, --trace, "
                                "--verify and --inject"}));
    }
  }
  if (options.backend == "threads") {
    return train_on_threads(options, must(make_threads_comms(ranks)));
  }
  // First: it chooses the GPU that the communicator is made on.
  std::unique_ptr<Compute> compute = compute_for(options);
  if (options.backend == "count") {
    Options one_step = options;
    one_step.steps = 1;
    return train_on_rank(one_step, make_count_comm(0, ranks), std::move(compute));
  }
  return train_on_rank(options, must(make_world(options.backend)), std::move(compute));
}

}  // namespace train
