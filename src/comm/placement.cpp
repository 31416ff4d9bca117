#include "comm/placement.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <sched.h>
#include <utility>

namespace treering {
namespace {

// A board holds the core's number + 1: 0 is nowhere.
std::int32_t on_board(int core) { return core + 1; }

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

int Placement::count_runnable() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/loadavg", "re"),
                                                             std::fclose);
  int runnable = 0;
  return file != nullptr && std::fscanf(file.get(), "%*f %*f %*f %d/", &runnable) == 1 ? runnable
                                                                                       : -1;
}

Placement::Placement(std::vector<Board*> boards, int rank, int (*runnable_threads)())
    : boards_(std::move(boards)),
      rank_(static_cast<std::size_t>(rank)),
      runnable_threads_(runnable_threads),
      cores_(usable_cores()) {}

bool Placement::is_on(std::size_t rank, int core) const {
  return boards_[rank]->core.load(std::memory_order_relaxed) == on_board(core);
}

int Placement::ranks_on(int core) const {
  int ranks = 0;
  for (std::size_t r = 0; r < boards_.size(); ++r) ranks += is_on(r, core) ? 1 : 0;
  return ranks;
}

void Placement::post(int core) {
  here_ = core;
  // Peers keep this line in their caches: it is written when it changes only.
  if (!is_on(rank_, core)) boards_[rank_]->core.store(on_board(core), std::memory_order_relaxed);
}

void Placement::update() {
  post(sched_getcpu());
  if (--waits_until_look_ == 0) leave_crowded_core();
}

void Placement::leave_crowded_core() {
  waits_until_look_ = kLookEvery;
  const int even = (static_cast<int>(boards_.size()) + cores_ - 1) / cores_;
  const int crowd = ranks_on(here_);
  if (crowd <= even) return;
  // One of them goes, not all at once: the last.
  for (std::size_t r = rank_ + 1; r < boards_.size(); ++r) {
    if (is_on(r, here_)) return;
  }
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  int emptiest = here_, fewest = crowd;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable)) continue;
    const int ranks = ranks_on(core);
    if (ranks < fewest) {
      fewest = ranks;
      emptiest = core;
    }
  }
  if (fewest + 1 >= crowd) return;
  // Others run, too, perhaps there: a rank that shares its core with one of them waits for a whole
  // time slice now and then, which costs more than a crowd of ranks that yield to each other.
  const int runnable = runnable_threads_();
  if (runnable < 0 || runnable > static_cast<int>(boards_.size())) {
    waits_until_look_ = kLookAfterRefusal;
    return;
  }
  waits_until_look_ = kLookAfterMove;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(emptiest, &there);
  if (sched_setaffinity(0, sizeof there, &there) != 0) return;
  post(emptiest);
  // What was allowed a moment ago; if somebody took cores away meanwhile, the kernel cuts it.
  (void)sched_setaffinity(0, sizeof usable, &usable);
}

}  // namespace treering
