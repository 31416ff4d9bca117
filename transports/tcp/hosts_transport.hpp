// Ranks of several hosts: shared memory where two share a host, TCP between all others.
//
// A link whose ends are on two hosts has its FIFO at both (peer_links.hpp), and the network carries
// it. A cast lies in its writer's segment; readers of its host read it there, and to those of other
// hosts it is sent from there. So every link exists, whatever the hosts are; windows do not.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transports/tcp/network.hpp"
#include "transports/transport.hpp"

namespace treering::tcp {

using LinkBytes = std::array<std::size_t, kLinks>;

class HostsTransport final : public Transport {
 public:
  // local: of this host's ranks, with its links to all (their boards are `local`'s too).
  HostsTransport(int rank, std::unique_ptr<Transport> local, std::unique_ptr<Network> network,
                 const LinkBytes& link_bytes);

  const char* name() const override { return "shm and tcp"; }
  std::string describe(int peer) const override;
  Result<FifoTx*> tx(const LinkId& id) override;
  Result<FifoRx*> rx(const LinkId& id) override;
  std::size_t link_data_bytes(LinkId::Kind kind) const override;
  LinkPump* pump() override { return network_.get(); }
  const std::vector<int>& host_of_rank() const override { return local_->host_of_rank(); }
  Board& board(int rank) override;
  void push_board() override { network_->push_board(); }
  void leave(std::chrono::milliseconds limit) override;
  Status check_peers() override;
  bool has_ended(int rank) override;
  Result<WindowMap> map_windows(void* ptr, std::size_t bytes, Rendezvous& rendezvous) override;
  std::size_t mapped_bytes() const override;
  std::size_t resident_bytes() const override;

 private:
  // The end of a link that goes to another host, and what the network reads and writes for it.
  struct Outbound {
    FifoTx end;
    LinkMemory memory;
    std::array<FifoLength, kFifoLines> lengths{};
  };
  Result<FifoTx*> cast_tx(const LinkId& id);

  int rank_;
  LinkBytes link_bytes_;
  bool any_share_a_host_;
  // The network reads what is below until it ends: it is the last member.
  std::unique_ptr<Transport> local_;
  std::map<LinkId, std::unique_ptr<Outbound>> tx_;
  std::map<LinkId, FifoRx> rx_;
  std::unique_ptr<Network> network_;
};

}  // namespace treering::tcp
