// What a communicator is known by from outside: its board's first lines and its flight record.
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/signature.hpp"
#include "comm/snapshot.hpp"
#include "core/log.hpp"

namespace treering {
namespace {

// The boards of this process's ranks, by family: communicators that one thread made, or that were
// split from one. Where a thread has several, a wait in one is the reason why nothing happens in
// the others.
struct OwnBoards {
  std::mutex mutex;
  std::multimap<std::uint64_t, Board*> boards;
};

OwnBoards& own_boards() {
  static OwnBoards* const boards = new OwnBoards;  // used until the process ends
  return *boards;
}

}  // namespace

std::uint64_t Communicator::family_of_this_thread() {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t family = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return family;
}

void Communicator::forget() {
  OwnBoards& own = own_boards();
  std::lock_guard lock(own.mutex);
  std::erase_if(own.boards, [this](const auto& entry) { return entry.second == board_; });
}

// Slow path of a wait.
void Communicator::note_elsewhere(const Operation& op) const {
  OwnBoards& own = own_boards();
  std::lock_guard lock(own.mutex);
  const auto [first, last] = own.boards.equal_range(family_);
  for (auto it = first; it != last; ++it) {
    if (it->second == board_) continue;
    BoardElsewhere& e = it->second->elsewhere;
    e.communicator.store(board_->communicator.load(std::memory_order_relaxed),
                         std::memory_order_relaxed);
    e.operation.store(operation_of(op), std::memory_order_relaxed);
    e.what.store(pack(kind_of(op.call)), std::memory_order_relaxed);
    e.count.store(op.call.count, std::memory_order_relaxed);
    e.noted_ms.store(steady_ms(), std::memory_order_release);  // pairs with take_snapshot
  }
}

Status Communicator::introduce(std::uint64_t communicator) {
  board_->rank.store(rank_, std::memory_order_relaxed);
  board_->size.store(size_, std::memory_order_relaxed);
  board_->bytes.store(sizeof(Board), std::memory_order_relaxed);
  board_->communicator.store(communicator, std::memory_order_relaxed);
  board_->process_space.store(own_process_space(), std::memory_order_relaxed);
  board_->magic.store(kBoardMagic, std::memory_order_release);  // pairs with readers outside
  {
    OwnBoards& own = own_boards();
    std::lock_guard lock(own.mutex);
    own.boards.emplace(family_, board_);
  }
  if (config_.flight_recorder == 0) return {};
  TR_ASSIGN_OR_RETURN(flight_,
                      FlightRecorder::make(communicator, rank_, size_,
                                           static_cast<std::uint32_t>(config_.flight_recorder)));
  return {};
}

Status Communicator::save_flight(const std::string& path) const {
  if (flight_ == nullptr) {
    return invalid_usage(
        "there is no flight record; TR_FLIGHT_RECORDER=1000 keeps the last 1000 calls");
  }
  std::vector<const Board*> boards;
  for (int r = 0; r < size_; ++r) boards.push_back(&transport_->board(r));
  return flight_->save(path, boards);
}

// On an error, which it must not hide.
void Communicator::save_flight() const {
  if (flight_ == nullptr) return;
  char name[64];
  std::snprintf(
      name, sizeof name, "/treering-%016llx-rank%d.flight",
      static_cast<unsigned long long>(board_->communicator.load(std::memory_order_relaxed)), rank_);
  const std::string path = (config_.flight_dir.empty() ? "." : config_.flight_dir) + name;
  const Status status = save_flight(path);
  TR_LOG_WARN(rank_, "%s",
              status.ok()
                  ? ("the last calls are in " + path + "; treering status shows them").c_str()
                  : status.message().c_str());
}

}  // namespace treering
