// The shared-memory transport of one rank: all segments, the ends of its links, who is alive.
//
// LINKS.md states the protocols. This file holds what lasts; connect.cpp builds it, windows.cpp
// maps the user's memory.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transports/segment.hpp"
#include "transports/shm/layout.hpp"
#include "transports/shm/liveness.hpp"
#include "transports/transport.hpp"

namespace treering::shm {

// Another rank, as far as this one needs to know it. A rank of another host has no segment.
struct PeerInfo {
  std::shared_ptr<Segment> segment;
  bool same_process = false;
  pid_t pid = 0;                 // as this process sees it; 0 = not visible
  UniqueFd own_end;              // kept open where the peer watches a connection, see Liveness
  bool keep_connection = false;  // as in hand_over.hpp
  UniqueFd memory_file;  // the own rank's: open, so that `treering status` finds it in /proc
};

class ShmTransport final : public Transport {
 public:
  // peers: every rank's, by rank, this rank's own included.
  ShmTransport(int rank, const Layout& layout, std::vector<PeerInfo> peers, Liveness liveness,
               std::vector<int> host_of_rank, int timeout_ms);

  const char* name() const override { return "shm"; }
  std::string describe(int peer) const override;
  Result<FifoTx*> tx(const LinkId& id) override;
  Result<FifoRx*> rx(const LinkId& id) override;
  std::size_t link_data_bytes(LinkId::Kind kind) const override { return layout_.sizes().of(kind); }
  const std::vector<int>& host_of_rank() const override { return host_of_rank_; }
  Board& board(int rank) override;
  Status check_peers() override {
    std::lock_guard lock(liveness_mutex_);
    return liveness_.check();
  }
  bool has_ended(int rank) override {
    std::lock_guard lock(liveness_mutex_);
    return liveness_.has_ended(rank);
  }
  Result<WindowMap> map_windows(void* ptr, std::size_t bytes, Rendezvous& rendezvous) override;
  std::size_t mapped_bytes() const override;
  std::size_t resident_bytes() const override { return resident_pages_ * kPageBytes; }

 private:
  std::byte* base_of(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].segment->base();
  }
  // Makes the link's pages resident; counts those of this rank's own segment.
  Status make_link_resident(int writer, const LinkPlace& place);

  int rank_;
  Layout layout_;
  std::vector<PeerInfo> peers_;
  std::mutex liveness_mutex_;
  Liveness liveness_;
  std::vector<int> host_of_rank_;
  int timeout_ms_;
  std::map<LinkId, FifoTx> tx_;  // a map: the addresses stay
  std::map<LinkId, FifoRx> rx_;
  std::vector<bool> page_is_resident_;  // of the own segment
  std::size_t resident_pages_ = 0;
};

}  // namespace treering::shm
