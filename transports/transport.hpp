// Transport: what connects the ranks of a communicator: shared memory on one host (transports/shm),
// and TCP besides where there are several (transports/tcp).
//
// The executor works on FifoTx/FifoRx and windows only; virtual calls happen when plans are built
// and on the slow path of a wait, never per message. Where links need somebody to move their
// messages there is a pump(), which whoever waits drives.
//
// Threads: one thread at a time, but for board(), push_board() and abort reads, which are any's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/link_id.hpp"
#include "core/status.hpp"
#include "transports/board.hpp"
#include "transports/fifo.hpp"
#include "transports/link_pump.hpp"
#include "transports/window_map.hpp"

namespace treering {

class Rendezvous;  // bootstrap/rendezvous.hpp

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const char* name() const = 0;
  // Says how `peer` is reached and why: "shared memory: its segment maps (memfd)".
  virtual std::string describe(int peer) const = 0;

  // The ends of the links that this rank writes or reads. Stable addresses for the transport's
  // life. Makes the link's memory resident at first use, so that no call faults later.
  virtual Result<FifoTx*> tx(const LinkId& id) = 0;
  virtual Result<FifoRx*> rx(const LinkId& id) = 0;
  // Bytes of slot data per link of this kind.
  virtual std::size_t link_data_bytes(LinkId::Kind kind) const = 0;

  // What carries messages where memory alone does not; nullptr: memory does.
  virtual LinkPump* pump() { return nullptr; }
  // Which host each rank is on, by rank: those of one number share memory. Numbered from 0 in the
  // order of their lowest ranks; the same on all ranks.
  virtual const std::vector<int>& host_of_rank() const = 0;

  // That of a rank on another host is a copy: fresh after a change of state, else as old as the
  // last check_peers, or older.
  virtual Board& board(int rank) = 0;
  // This rank's state has changed in a way that peers must learn at once. Any thread; never blocks.
  virtual void push_board() {}
  // The state on the board is this rank's last one, and it will post no more: what peers still need
  // is with their machines when this returns, unless it takes longer than the limit.
  virtual void leave(std::chrono::milliseconds limit) { (void)limit; }

  // Slow path of a wait, at most every few milliseconds: has a peer process ended? An error names
  // it. A peer that finalized first is no error here. Any thread, as has_ended.
  virtual Status check_peers() = 0;
  // Did this rank's process end or leave (finalized)? For the text of a wait on that very rank.
  virtual bool has_ended(int rank) = 0;

  // Collective over the ranks: maps [ptr, ptr + bytes) of every rank's tr_mem_alloc memory,
  // resident. As long as the map lives, mem_free refuses this rank's block. Either all ranks get it
  // or none: memory of one rank that mem_alloc did not give out is an error on all, which names the
  // rank.
  virtual Result<WindowMap> map_windows(void* ptr, std::size_t bytes, Rendezvous& rendezvous) = 0;

  // Bytes of address space that the segments of all ranks take here.
  virtual std::size_t mapped_bytes() const = 0;
  // Bytes of memory that this rank's own segment takes so far: its board and the links that it
  // writes. The sum over the ranks is the memory of the communicator.
  virtual std::size_t resident_bytes() const = 0;
};

}  // namespace treering
