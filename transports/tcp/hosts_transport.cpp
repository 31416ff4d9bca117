#include "transports/tcp/hosts_transport.hpp"

#include <algorithm>
#include <utility>

namespace treering::tcp {

HostsTransport::HostsTransport(int rank, std::unique_ptr<Transport> local,
                               std::unique_ptr<Network> network, const LinkBytes& link_bytes)
    : rank_(rank), link_bytes_(link_bytes), local_(std::move(local)), network_(std::move(network)) {
  std::vector<int> hosts = host_of_rank();
  std::sort(hosts.begin(), hosts.end());
  any_share_a_host_ = std::adjacent_find(hosts.begin(), hosts.end()) != hosts.end();
}

std::string HostsTransport::describe(int peer) const {
  return network_->reaches(peer) ? network_->describe(peer) : local_->describe(peer);
}

// What every link of the kind has at least: those within a host are the smaller ones.
std::size_t HostsTransport::link_data_bytes(LinkId::Kind kind) const {
  if (any_share_a_host_ || kind == LinkId::Kind::kCast) return local_->link_data_bytes(kind);
  return link_bytes_[static_cast<std::size_t>(index_of({kind, 0, 0, 1}))];
}

Board& HostsTransport::board(int rank) {
  return network_->reaches(rank) ? network_->mirror(rank) : local_->board(rank);
}

Result<FifoTx*> HostsTransport::cast_tx(const LinkId& id) {
  TR_ASSIGN_OR_RETURN(FifoTx* const end, local_->tx(id));
  if (end->lengths != nullptr) return end;
  auto made = std::make_unique<Outbound>();
  end->lengths = made->lengths.data();
  for (int reader = end->first_reader; reader < end->end_reader; ++reader) {
    if (network_->reaches(reader))
      network_->open_out(reader, index_of(id), *end, end->heads[reader]);
  }
  tx_.emplace(id, std::move(made));
  return end;
}

Result<FifoTx*> HostsTransport::tx(const LinkId& id) {
  if (id.kind == LinkId::Kind::kCast) return cast_tx(id);
  const int ranks = static_cast<int>(host_of_rank().size());
  if (id.dst < 0 || id.dst >= ranks || !network_->reaches(id.dst)) return local_->tx(id);
  if (const auto known = tx_.find(id); known != tx_.end()) return &known->second->end;
  if (id.src != rank_)
    return internal_error("rank " + std::to_string(rank_) + " does not write link " +
                          to_string(id));
  auto made = std::make_unique<Outbound>();
  const int index = index_of(id);
  TR_ASSIGN_OR_RETURN(made->memory, LinkMemory::make(link_bytes_[static_cast<std::size_t>(index)]));
  made->end.lines = made->memory.lines();
  made->end.data = made->memory.data();
  made->end.data_bytes = made->memory.data_bytes();
  made->end.heads = made->memory.head();
  made->end.lengths = made->lengths.data();
  network_->open_out(id.dst, index, made->end, *made->memory.head());
  return &tx_.emplace(id, std::move(made)).first->second->end;
}

Result<FifoRx*> HostsTransport::rx(const LinkId& id) {
  const int ranks = static_cast<int>(host_of_rank().size());
  if (id.src < 0 || id.src >= ranks || !network_->reaches(id.src)) return local_->rx(id);
  if (const auto known = rx_.find(id); known != rx_.end()) return &known->second;
  if (id.kind != LinkId::Kind::kCast && id.dst != rank_)
    return internal_error("rank " + std::to_string(rank_) + " does not read link " + to_string(id));
  TR_ASSIGN_OR_RETURN(const LinkMemory* const memory, network_->open_in(id.src, index_of(id)));
  FifoRx end;
  end.lines = memory->lines();
  end.data = memory->data();
  end.data_bytes = memory->data_bytes();
  end.head = memory->head();
  return &rx_.emplace(id, end).first->second;
}

// In the order of LINKS.md, L4: who is gone, who aborted, who failed.
Status HostsTransport::check_peers() {
  network_->ask_boards();
  TR_RETURN_IF_ERROR(network_->check_gone());
  TR_RETURN_IF_ERROR(local_->check_peers());
  return network_->check_failed();
}

bool HostsTransport::has_ended(int rank) {
  return network_->reaches(rank) ? network_->has_ended(rank) : local_->has_ended(rank);
}

void HostsTransport::leave(std::chrono::milliseconds limit) {
  const RankState state = local_->board(rank_).state.load(std::memory_order_relaxed);
  network_->leave(state == RankState::kFinalized, limit);
}

// The same on all ranks, without a word between them.
Result<WindowMap> HostsTransport::map_windows(void*, std::size_t, Rendezvous&) {
  return unsupported(
      "memory cannot be registered with a communicator of several hosts: their ranks share no "
      "memory; its collectives need no registration");
}

std::size_t HostsTransport::mapped_bytes() const {
  std::size_t bytes = local_->mapped_bytes() + network_->memory_bytes();
  for (const auto& [id, out] : tx_) bytes += out->memory.bytes();
  return bytes;
}

std::size_t HostsTransport::resident_bytes() const {
  std::size_t bytes = local_->resident_bytes() + network_->memory_bytes();
  for (const auto& [id, out] : tx_) bytes += out->memory.bytes();
  return bytes;
}

}  // namespace treering::tcp
