// The worker's side: a library behind one interface, and the loop that serves the driver's commands
// with it. An adapter (peers/mpi.cpp, peers/gloo.cpp, src/cli/perf/treering_library.cpp) implements
// Library and its main() calls run_worker().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "perf/case.hpp"
#include "perf/data.hpp"
#include "perf/failure.hpp"
#include "perf/memory.hpp"

namespace treering::perf {

// One rank of a library under measurement. Used by one thread.
class Library {
 public:
  // All calls are on buffers in `memory` and, on a GPU, on its stream.
  explicit Library(Memory& memory = host_memory()) : memory_(memory) {}
  virtual ~Library() = default;
  Memory& memory() const { return memory_; }

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual std::string version() const = 0;

  // The settings (algorithm, socket mode) in which the library can run `what`; {""}: it has just
  // one. None: *why says why not. The same on all ranks.
  virtual std::vector<std::string> settings(const Case& what, std::string* why) = 0;

  // The two buffers that all cases use, of `bytes` each: page-aligned, every page written. The
  // default is the same for all libraries. Called once, before prepare.
  virtual Failure allocate(std::size_t bytes, void** a, void** b) {
    return memory_.allocate(bytes, a, b);
  }

  // Makes the calls of run() ready: everything that a user would do once. Collective. The buffers
  // are as large as the case needs and stay valid; recv == send where the case runs in place (or
  // the library's in-place rule with an offset, see place_buffers).
  virtual Failure prepare(const std::string& setting, const Case& what, void* send, void* recv) = 0;
  // The prepared operation, `times` times in a row. Collective. On a GPU: enqueues it, as
  // barrier().
  virtual Failure run(std::uint64_t times) = 0;
  virtual Failure barrier() = 0;
  // Until all that was enqueued is done; what became of it.
  virtual Failure finish() { return std::nullopt; }

  // By which rules its results are checked.
  virtual Rules rules() const { return Rules::kCommon; }

 private:
  Memory& memory_;
};

// For run(): call() `times` times; stops at the first failure, which is a code that is not
// `success`. A template, so that the timed loop has no call of its own around the library's.
template <class Call, class Code>
Code repeat(std::uint64_t times, Code success, const Call& call) {
  for (std::uint64_t i = 0; i < times; ++i) {
    if (const Code code = call(); code != success) return code;
  }
  return success;
}

// Connects to the driver named by the environment and serves it until it quits or goes away.
// Returns the exit status of the process: 0, or 1 with the reason on stderr. A command that takes
// longer than the driver's timeout ends the process by SIGALRM, so that no worker outlives a driver
// that was killed.
int run_worker(Library& library);

// Starts that clock before the library is initialised, since that may hang too.
void limit_start_up();

// How the ranks of a team on GPUs are there: as this process, one of those that `treering run`
// started, or all of them as threads of this process. Ranks that share a GPU run side by side only
// as threads, or as processes where NVIDIA's MPS runs.
struct RankPlace {
  int rank = 0;
  int ranks = 1;
  bool threads = false;
};
// Runs one_rank(place) on a thread each, or for this process alone where `threads` is 0, and
// returns the largest exit status.
int run_ranks(int threads, const std::function<int(const RankPlace&)>& one_rank);

}  // namespace treering::perf
