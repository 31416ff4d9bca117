// Placement: the cores that a communicator's ranks run on, and what a rank that waits makes of it.
//
// Where ranks outnumber cores, most of a small operation is switches between ranks of one core. Two
// things save switches (ARCHITECTURE.md, decision 20, has the numbers):
//   - A rank that waits for one of its own core yields at once, because the other cannot move
//     before; for one of another core it spins a little, because that one is likely to be running.
//   - Three ranks on one core and one on another take about twice as long as two and two. The
//     kernel evens that out in tens of milliseconds; a rank that waits sees it on the boards and
//     moves itself, once, by narrowing its thread's affinity and widening it again. Not while
//     other programs run: where they are is not known.
//
// Everything here is a hint: a wrong one costs time, never a result. Threads: the one that calls
// the communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/board.hpp"

namespace treering {

class Placement {
 public:
  // boards: of all ranks, by rank, on this host; they outlive this. runnable_threads: on all cores
  // of this machine, whosever; -1: unknown.
  Placement(std::vector<Board*> boards, int rank, int (*runnable_threads)() = &count_runnable);

  bool more_ranks_than_cores() const { return static_cast<int>(boards_.size()) > cores_; }

  // Once in a wait: says on the board where this rank is, and may move it.
  void update();
  // As of the last update: `rank` was last seen on this rank's core.
  bool shares_core(int rank) const { return is_on(static_cast<std::size_t>(rank), here_); }

  static int count_runnable();

 private:
  bool is_on(std::size_t rank, int core) const;
  int ranks_on(int core) const;
  void post(int core);
  void leave_crowded_core();

  std::vector<Board*> boards_;
  std::size_t rank_;
  int (*runnable_threads_)();
  int cores_;  // that this process may use
  int here_ = -1;
  std::uint32_t waits_until_look_ = kLookEvery;

  // Waits until the next look. A move takes about ten microseconds, and the kernel may undo it.
  static constexpr std::uint32_t kLookEvery = 32;
  static constexpr std::uint32_t kLookAfterMove = 64;
  static constexpr std::uint32_t kLookAfterRefusal = 128;
};

}  // namespace treering
