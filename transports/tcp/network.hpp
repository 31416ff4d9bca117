// Network: all connections of one rank to the ranks of other hosts, and what drives them.
//
// Data moves when somebody who waits calls progress(); the network's own thread sleeps until there
// is something that nobody waits for: what was left to send when a caller went away, and the
// control connections, which it answers whatever the rank is doing.
//
// Threads: any; one lock, never held while anything blocks.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "core/status.hpp"
#include "core/unique_fd.hpp"
#include "transports/board.hpp"
#include "transports/link_pump.hpp"
#include "transports/tcp/control.hpp"
#include "transports/tcp/fork_guard.hpp"
#include "transports/tcp/peer_links.hpp"
#include "transports/tcp/stream.hpp"

namespace treering::tcp {

// The connections to one peer, proven and open.
struct PeerSockets {
  int rank = -1;
  UniqueFd control;
  std::vector<UniqueFd> data;
  std::string route;  // "10.0.0.2:4711 by eth0", for texts
};

class Network final : public LinkPump {
 public:
  // own: this rank's board. data_bytes: of the slots of each link, by index (wire.hpp).
  static Result<std::unique_ptr<Network>> start(int rank, int size, const Board& own,
                                                const std::array<std::size_t, kLinks>& data_bytes,
                                                bool checksum, std::vector<PeerSockets> peers);
  ~Network() override;  // closes all; see leave()
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  bool progress() override;
  void flush() override;
  void wait(std::chrono::nanoseconds at_most) override;

  bool reaches(int rank) const { return by_rank_[static_cast<std::size_t>(rank)] != nullptr; }
  // The rest is for ranks that it reaches.
  Board& mirror(int rank) { return *peer(rank).mirror; }
  void open_out(int rank, int link, const FifoTx& end, FifoHead& head);
  Result<const LinkMemory*> open_in(int rank, int link);
  std::string describe(int rank) const;

  // The own board goes to all peers; in this call as far as there is room.
  void push_board();
  // Asks the peers for their boards, unless that was done a moment ago.
  void ask_boards();
  // A peer that is gone, or whose connections broke, while its board says that it lives; the lowest
  // such rank.
  Status check_gone();
  // What the mirrors say of ranks that aborted or failed.
  Status check_failed();
  // The peer has said that it left, or is gone, and nothing of it is on its way any more.
  bool has_ended(int rank);

  // For the rank's end: pushes the board and, with_data, sends what is posted, until the peers'
  // machines have it, within the limit; who is gone or failed is not waited for.
  void leave(bool with_data, std::chrono::milliseconds limit);

  std::size_t memory_bytes();

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    Peer(int r, int own_rank, const std::array<std::size_t, kLinks>& data_bytes, bool checksum)
        : rank(r), mirror(std::make_unique<Board>()), links(own_rank, r, data_bytes, checksum) {}
    int rank;
    std::string route;
    std::unique_ptr<Board> mirror;
    PeerLinks links;
    std::vector<std::unique_ptr<Stream>> streams;
    std::unique_ptr<Control> control;
  };
  Network(int rank, int size, const Board& own);
  Peer& peer(int rank) const { return *by_rank_[static_cast<std::size_t>(rank)]; }
  RankState state_of(const Peer& peer) const;
  // All with the lock held.
  bool send(Peer& peer, bool any_credit);
  bool receive_all();
  bool receive(Peer& peer);
  bool is_drained(const Peer& peer) const;  // no data of it will come any more
  bool has_unsent(const Peer& peer) const;
  bool serve(Peer& peer, bool readable);
  Status broken(const Peer& peer) const;
  void wake() const;
  void run();

  const int rank_;
  const Board& own_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> by_rank_;  // nullptr: a rank of this host
  mutable std::mutex mutex_;    // guards the peers and all below but the atomics
  UniqueFd ready_;              // epoll: data connections with something to read
  std::size_t streams_ = 0;
  UniqueFd wake_;  // eventfd
  bool left_over_ = false;
  Clock::time_point asked_;
  std::atomic<bool> stop_{false};
  const pid_t process_;  // a forked child has no thread to join
  std::thread thread_;
  std::unique_ptr<ForkGuard> guard_;  // ends before the sockets do
};

}  // namespace treering::tcp
