#include "transports/shm/shm_transport.hpp"

#include <utility>

namespace treering::shm {

ShmTransport::ShmTransport(int rank, const Layout& layout, std::vector<PeerInfo> peers,
                           Liveness liveness, std::vector<int> host_of_rank, int timeout_ms)
    : rank_(rank),
      layout_(layout),
      peers_(std::move(peers)),
      liveness_(std::move(liveness)),
      host_of_rank_(std::move(host_of_rank)),
      timeout_ms_(timeout_ms),
      page_is_resident_(layout.bytes() / kPageBytes, false) {
  // The board, which the communicator writes at once.
  resident_pages_ = round_up(sizeof(Board), kPageBytes) / kPageBytes;  // by connect_shm
  for (std::size_t page = 0; page < resident_pages_; ++page) page_is_resident_[page] = true;
}

std::size_t ShmTransport::mapped_bytes() const {
  std::size_t bytes = 0;
  for (const PeerInfo& peer : peers_) bytes += peer.segment != nullptr ? layout_.bytes() : 0;
  return bytes;
}

std::string ShmTransport::describe(int peer) const {
  const PeerInfo& info = peers_[static_cast<std::size_t>(peer)];
  if (peer == rank_) return "shared memory: itself";
  if (info.same_process) return "shared memory: a thread of this process";
  std::string text = "shared memory: its segment maps (memfd)";
  if (info.pid > 0) text += ", process " + std::to_string(info.pid);
  return text;
}

Status ShmTransport::make_link_resident(int writer, const LinkPlace& place) {
  std::byte* const base = base_of(writer);
  TR_RETURN_IF_ERROR(make_resident(base + place.lines, place.end_of_heads - place.lines));
  TR_RETURN_IF_ERROR(make_resident(base + place.data, place.data_bytes));
  if (writer != rank_) return {};
  const auto count = [this](std::size_t begin, std::size_t end) {
    for (std::size_t page = begin / kPageBytes; page * kPageBytes < end; ++page) {
      if (page_is_resident_[page]) continue;
      page_is_resident_[page] = true;
      ++resident_pages_;
    }
  };
  count(place.lines, place.end_of_heads);
  count(place.data, place.data + place.data_bytes);
  return {};
}

Result<FifoTx*> ShmTransport::tx(const LinkId& id) {
  if (const auto known = tx_.find(id); known != tx_.end()) return &known->second;
  if (!layout_.contains(id) || id.src != rank_)
    return internal_error("rank " + std::to_string(rank_) + " does not write link " +
                          to_string(id));
  const LinkPlace place = layout_.place(id);
  TR_RETURN_IF_ERROR(make_link_resident(rank_, place).with_context("link " + to_string(id)));
  std::byte* const base = base_of(rank_);
  FifoTx end;
  end.lines = reinterpret_cast<FifoLine*>(base + place.lines);
  end.data = base + place.data;
  end.data_bytes = place.data_bytes;
  end.heads = reinterpret_cast<FifoHead*>(base + place.heads);
  if (id.kind == LinkId::Kind::kCast) {
    end.end_reader = static_cast<std::int32_t>(peers_.size());
    end.skip_reader = rank_;
  }
  return &tx_.emplace(id, end).first->second;
}

Result<FifoRx*> ShmTransport::rx(const LinkId& id) {
  if (const auto known = rx_.find(id); known != rx_.end()) return &known->second;
  const bool is_cast = id.kind == LinkId::Kind::kCast;
  if (!layout_.contains(id) || (is_cast ? id.src == rank_ : id.dst != rank_) ||
      peers_[static_cast<std::size_t>(id.src)].segment == nullptr)
    return internal_error("rank " + std::to_string(rank_) + " does not read link " + to_string(id));
  const LinkPlace place = layout_.place(id);
  TR_RETURN_IF_ERROR(make_link_resident(id.src, place).with_context("link " + to_string(id)));
  std::byte* const base = base_of(id.src);
  FifoRx end;
  end.lines = reinterpret_cast<FifoLine*>(base + place.lines);
  end.data = base + place.data;
  end.data_bytes = place.data_bytes;
  end.head = reinterpret_cast<FifoHead*>(base + place.heads) + (is_cast ? rank_ : 0);
  return &rx_.emplace(id, end).first->second;
}

Board& ShmTransport::board(int rank) { return *reinterpret_cast<Board*>(base_of(rank)); }

}  // namespace treering::shm
