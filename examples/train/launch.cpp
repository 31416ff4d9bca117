// Who starts the ranks, and on what they compute.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>

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

constexpr int kMostThreads = 1024;

tr::Error refuse(const std::string& what) { return {TR_INVALID_ARGUMENT, what}; }

// Who started this process as one of several, and the variable that says so; no name: nobody.
struct Launcher {
  const char* name = nullptr;
  const char* variable = nullptr;
  int ranks = 1;
};
Launcher launcher() {
  constexpr Launcher kKnown[] = {{"treering run", "TR_SIZE"},
                                 {"torchrun", "WORLD_SIZE"},
                                 {"mpirun", "OMPI_COMM_WORLD_SIZE"},
                                 {"a launcher with PMI", "PMI_SIZE"}};
  for (Launcher one : kKnown) {
    const char* const size = std::getenv(one.variable);
    one.ranks = size == nullptr ? 1 : std::atoi(size);
    if (one.ranks > 1) return one;
  }
  return {};
}

// A launcher's processes are ranks, or there is no launcher: never several trainings side by side.
tr::Status check_launcher(const std::string& backend) {
  const Launcher by = launcher();
  if (by.name == nullptr || (backend != "threads" && backend != "count")) return {};
  return refuse("--backend " + backend + ": its ranks are all in one process, but " + by.name +
                " has started " + std::to_string(by.ranks) + " (" + by.variable + "=" +
                std::to_string(by.ranks) +
                "): start it alone, with --ranks or --dp, --pp and --tp "
                "for the ranks, or take --backend treering");
}

// A library that does not know the launcher takes each process for a world of its own.
tr::Status check_world(const std::string& backend, int ranks) {
  const Launcher by = launcher();
  if (by.name == nullptr || by.ranks == ranks) return {};
  return refuse("--backend " + backend + " sees " + std::to_string(ranks) + " rank" +
                (ranks == 1 ? "" : "s") + ", but " + by.name + " has started " +
                std::to_string(by.ranks) + " (" + by.variable + "=" + std::to_string(by.ranks) +
                "): start it with " + (backend == "mpi" ? "mpirun" : "that backend's launcher"));
}

// What a batch takes before anything is computed: its rows' numbers, and noise itself.
tr::Status check_batch(const Options& options) {
  constexpr double kNoiseFeatures = 1024, kGb = 1e9;
  double bytes = 8.0 * options.batch;
  const bool makes_noise = options.data == "noise" && options.backend != "count";
  if (makes_noise) bytes += 4.0 * kNoiseFeatures * options.batch;
  const double has =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (bytes < has) return {};
  return refuse("--batch " + std::to_string(options.batch) + ": rows" +
                (makes_noise ? " of 1024 numbers" : "") + " take " + std::to_string(bytes / kGb) +
                " GB, and this machine has " + std::to_string(has / kGb) +
                " GB: take a smaller batch");
}

// Ranks, made with the algorithms that --algo forces: an error of theirs is the flag's.
template <class Made>
Made ranks_of(const Options& options, tr::Result<Made> made) {
  if (made || options.algo.empty()) return must(std::move(made));
  must(tr::Status(
      tr::Error{made.error().code, "--algo " + options.algo + ": " + made.error().message}));
  return {};
}

// "ring" is all_reduce's.
void force_algorithms(const std::string& algo) {
  const bool names_collective = algo.find(':') != std::string::npos;
  ::setenv("TR_ALGO", (names_collective ? algo : "all_reduce:" + algo).c_str(), 1);
}

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
  must(check_launcher(options.backend));
  must(check_batch(options));
  const MeshShape& mesh = options.trainer.mesh;
  const int ranks = options.ranks > 0 ? options.ranks : std::max(1, mesh.dp) * mesh.pp * mesh.tp;
  if (options.timeout_s > 0) {
    ::setenv("TR_TIMEOUT_S", std::to_string(options.timeout_s).c_str(), 1);
  }
  if (!options.algo.empty()) force_algorithms(options.algo);
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
      must(tr::Status(
          refuse("--backend count trains nothing: without --save, --load, --trace, --verify and "
                 "--inject")));
    }
  }
  if (options.backend == "threads") {
    if (ranks > kMostThreads) {
      must(tr::Status(refuse("--backend threads: " + std::to_string(ranks) + " ranks; at most " +
                             std::to_string(kMostThreads) + ", or --backend count")));
    }
    return train_on_threads(options, ranks_of(options, make_threads_comms(ranks)));
  }
  // First: it chooses the GPU that the communicator is made on.
  std::unique_ptr<Compute> compute = compute_for(options);
  if (options.backend == "count") {
    Options one_step = options;
    one_step.steps = 1;
    return train_on_rank(one_step, make_count_comm(0, ranks), std::move(compute));
  }
  std::unique_ptr<Comm> world = ranks_of(options, make_world(options.backend));
  must(check_world(options.backend, world->size()));
  return train_on_rank(options, std::move(world), std::move(compute));
}

}  // namespace train
