// Who is still there: the processes of the other ranks and what their boards say.
//
// A process is watched by pidfd, which knows its end at once, kill -9 included, and counts a zombie
// as ended. Where a pidfd cannot be had (another pid namespace, an old kernel) the connection of
// the hand-over stays open instead and ends with the process; a forked child that still holds it
// hides the end until it closes it too.
#pragma once

#include <memory>
#include <poll.h>
#include <sys/types.h>
#include <vector>

#include "core/status.hpp"
#include "core/unique_fd.hpp"
#include "transports/board.hpp"
#include "transports/process.hpp"

namespace treering::shm {

class Liveness {
 public:
  // boards: every rank's, by rank, nullptr for one of another host; they outlive this.
  Liveness(int rank, std::vector<Board*> boards);

  // Until one of these is called for it, a rank counts as a thread of this process.
  Status watch_process(int rank, pid_t pid);
  // pid: for the text only; 0 = unknown.
  void watch_connection(int rank, UniqueFd connection, pid_t pid);

  // One poll() and a look at each board. An error names the cause: a process that ended without
  // having finalized; else a rank that aborted; else a rank that failed, with the reason that it
  // gave.
  Status check();
  // Did the rank's process end, or did the rank leave (finalize)?
  bool has_ended(int rank);

 private:
  struct Peer {
    std::shared_ptr<ProcessWatch> process;
    UniqueFd connection;
    pid_t pid = 0;
    bool ended = false;
  };
  void poll_now();
  RankState state_of(int rank) const;

  int rank_;
  std::vector<Board*> boards_;
  std::vector<Peer> peers_;
  std::vector<pollfd> entries_;          // one per process or connection
  std::vector<std::vector<int>> whose_;  // by entry: the ranks that end with it
  bool descriptors_closed_ = false;      // by the program that uses the library
};

}  // namespace treering::shm
