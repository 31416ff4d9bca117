#include "transports/shm/liveness.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace treering::shm {

Liveness::Liveness(int rank, std::vector<Board*> boards)
    : rank_(rank), boards_(std::move(boards)), peers_(boards_.size()) {}

Status Liveness::watch_process(int rank, pid_t pid) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  TR_ASSIGN_OR_RETURN(peer.process, ProcessWatch::of(pid));
  peer.pid = pid;
  const int fd = peer.process->fd();
  const auto it = std::ranges::find(entries_, fd, &pollfd::fd);
  if (it != entries_.end()) {
    whose_[static_cast<std::size_t>(it - entries_.begin())].push_back(rank);
    return {};
  }
  entries_.push_back({fd, POLLIN, 0});
  whose_.push_back({rank});
  return {};
}

void Liveness::watch_connection(int rank, UniqueFd connection, pid_t pid) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  peer.connection = std::move(connection);
  peer.pid = pid;
  // Nobody sends on it, so being readable means that the other end is closed.
  entries_.push_back({peer.connection.get(), POLLIN, 0});
  whose_.push_back({rank});
}

void Liveness::poll_now() {
  if (entries_.empty() || ::poll(entries_.data(), entries_.size(), 0) <= 0) return;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].revents == 0) continue;
    if ((entries_[i].revents & POLLNVAL) != 0) {
      descriptors_closed_ = true;
      continue;
    }
    for (const int rank : whose_[i]) peers_[static_cast<std::size_t>(rank)].ended = true;
    entries_[i].fd = -1;  // an end is final: poll() passes over it from now on
  }
}

RankState Liveness::state_of(int rank) const {
  const Board* const board = boards_[static_cast<std::size_t>(rank)];
  if (board == nullptr) return RankState::kLive;  // somebody else watches over other hosts
  // Pairs with the release of the state's writer: code and cause are there.
  return board->state.load(std::memory_order_acquire);
}

Status Liveness::check() {
  poll_now();
  if (descriptors_closed_) {
    return Status(Code::kSystem,
                  "this process closed file descriptors of the library, by which it sees whether "
                  "other ranks are alive; close only descriptors that you opened");
  }
  // An ended rank that had failed or aborted is a consequence: its board tells of the cause below.
  std::string ended;
  int count = 0;
  const int size = static_cast<int>(peers_.size());
  for (int r = 0; r < size; ++r) {
    const Peer& peer = peers_[static_cast<std::size_t>(r)];
    if (!peer.ended) continue;
    const RankState state = state_of(r);
    if (state != RankState::kForming && state != RankState::kLive) continue;
    ended += (count++ == 0 ? "" : ", ") + std::string("rank ") + std::to_string(r);
    if (peer.pid > 0) ended += " (process " + std::to_string(peer.pid) + ")";
  }
  if (count > 0) return remote_error(ended + " ended");

  for (int r = 0; r < size; ++r)
    if (r != rank_ && state_of(r) == RankState::kAborted)
      return Status(Code::kAborted, "rank " + std::to_string(r) + " aborted the communicator");

  for (int r = 0; r < size; ++r) {
    if (r == rank_ || state_of(r) != RankState::kFailed) continue;
    const Board& board = *boards_[static_cast<std::size_t>(r)];
    // Written before the state, see state_of.
    auto code = static_cast<Code>(board.code.load(std::memory_order_relaxed));
    if (code == Code::kOk || code > Code::kInternal) code = Code::kRemote;
    std::string text = "rank " + std::to_string(r) + " failed: ";
    text.append(board.cause, ::strnlen(board.cause, kCauseBytes));
    return Status(code, text);
  }
  return {};
}

bool Liveness::has_ended(int rank) {
  poll_now();
  return peers_[static_cast<std::size_t>(rank)].ended || state_of(rank) == RankState::kFinalized;
}

}  // namespace treering::shm
