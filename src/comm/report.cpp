// Waits that are slow, and what a communicator says of them: who did what, who waits for whom.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "comm/call_deadline.hpp"
#include "comm/communicator.hpp"
#include "comm/signature.hpp"
#include "comm/snapshot.hpp"
#include "core/deadline.hpp"
#include "core/log.hpp"
#include "core/rank_list.hpp"

namespace treering {
namespace {

using std::chrono::milliseconds;

// Between two looks at the other ranks a wait lets an eighth of its length go by, at most this.
constexpr milliseconds kMostBetweenLooks(50);
// How many ranks that are not there yet a report describes one by one.
constexpr int kMostDescribed = 8;
// So long a rank whose call differs from another host's waits for that host's boards, to name
// calls.
constexpr int kAnswersMs = 300;

std::string seconds(std::chrono::nanoseconds t) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(t).count());
  return text;
}

// "rank 0 waits for rank 3, rank 3 for rank 2"
std::string chain_words(const WaitChain& chain) {
  std::string text;
  for (std::size_t i = 0; i + 1 < chain.ranks.size(); ++i) {
    text += (i == 0 ? "rank " : ", rank ") + std::to_string(chain.ranks[i]) +
            (i == 0 ? " waits for rank " : " for rank ") + std::to_string(chain.ranks[i + 1]);
  }
  return text;
}

std::string because_of(const std::vector<int>& ranks) {
  return std::string(ranks.size() == 1 ? " waits" : " wait") + " because of ";
}

}  // namespace

std::string Communicator::describe(const Operation& op) const {
  if (op.call.collective == Collective::kSendRecv) {
    const bool sends = op.call.is_send;
    if (op.call.part_of != nullptr) {
      return std::string(op.call.part_of) + ", which every rank must call (exchange with rank " +
             std::to_string(op.call.root) + ")";
    }
    return std::string(sends ? "send to" : "receive from") + " rank " +
           std::to_string(op.call.root) + " of " + std::to_string(op.call.count) + " " +
           type_name(op.call.type);
  }
  return "operation " + std::to_string(op.sequence) + " (" +
         to_string(kind_of(op.call), op.call.count, size_) + ")";
}

// For the others: what this rank waits for. They believe it as long as this rank has not moved.
void Communicator::note_wait(const Operation& op, const Operation::Wait& wait,
                             std::chrono::nanoseconds waited) {
  BoardWait& w = board_->wait;
  w.noted.store(0, std::memory_order_relaxed);
  w.link.store(pack(wait.link), std::memory_order_release);
  w.number.store(wait.number, std::memory_order_release);
  w.operation.store(operation_of(op), std::memory_order_release);
  w.round.store(wait.round, std::memory_order_release);
  w.chunk.store(wait.chunk, std::memory_order_release);
  w.slice.store(wait.slice, std::memory_order_release);
  w.verb.store(static_cast<std::uint32_t>(wait.verb), std::memory_order_release);
  w.for_room.store(wait.for_credit ? 1 : 0, std::memory_order_release);
  w.peer.store(wait.peer, std::memory_order_release);
  w.looks.store(w.looks.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  w.waited_ms.store(
      static_cast<std::uint64_t>(std::chrono::duration_cast<milliseconds>(waited).count()),
      std::memory_order_release);
  // Pairs with noted_wait.
  w.noted.store(board_->moves.load(std::memory_order_relaxed) + 1, std::memory_order_release);

  const std::vector<PlanLink>& links = op.plan().links();
  for (std::size_t i = 0; i < kBoardLinks; ++i) {
    BoardLink& entry = board_->links[i];
    entry.link.store(0, std::memory_order_relaxed);
    if (i >= links.size()) continue;
    const PlanLink& link = links[i];
    const bool sends = link.tx != nullptr;
    entry.messages.store(sends ? link.tx->next : link.rx->next, std::memory_order_release);
    entry.bytes.store(sends ? link.tx->moved_bytes : link.rx->moved_bytes,
                      std::memory_order_release);
    entry.link.store(pack(link.id), std::memory_order_release);  // pairs with take_snapshot
  }
}

// Has any rank that this one waits for, directly or through others, moved since the last look?
bool Communicator::others_moved(const Operation::Wait& wait) {
  seen_moves_.resize(static_cast<std::size_t>(size_), 0);
  bool moved = false;
  int r = wait.peer;
  for (int i = 0; i < size_ && r >= 0 && r < size_ && r != rank_; ++i) {
    const Board& board = transport_->board(r);
    const std::uint64_t moves = board.moves.load(std::memory_order_relaxed);
    std::uint64_t& seen = seen_moves_[static_cast<std::size_t>(r)];
    moved |= moves != seen;
    seen = moves;
    const std::optional<NotedWait> next = noted_wait(board);
    r = next ? next->peer : -1;
  }
  return moved;
}

// Dead, failed or aborted peers, and peers that left while this rank still waits for them.
Status Communicator::check_peers(const Operation& op, std::chrono::nanoseconds waited) {
  Status status = transport_->check_peers();
  if (!status.ok()) {
    // A peer that failed by a mismatch has the same calls on the board as everybody: say them all.
    if (status.code() == Code::kMismatch) {
      const Status calls = compare_calls();
      if (!calls.ok()) return calls;
    }
    if (status.code() == Code::kTimeout) {
      return Status(Code::kTimeout, status.message() + "; here: " + hang_report(op, waited));
    }
    return status;
  }
  Operation::Wait wait;
  if (!op.where(&wait)) return {};
  const int peer = wait.for_credit ? wait.link.dst : wait.link.src;
  for (int r = 0; r < size_; ++r) {
    // Pairs with store_vote: a rank that votes has given its operations here up.
    const bool shrinks =
        r != rank_ && transport_->board(r).vote.round.load(std::memory_order_acquire) > 0;
    if (r == rank_ || (peer >= 0 && r != peer) || !(shrinks || transport_->has_ended(r))) continue;
    // A one-to-many link without room: a reader that has left stands in the way if it has not read
    // everything. Pairs with rx_release; has_ended came first, so what it read is seen.
    if (peer < 0 && wait.tx->heads[r].head.load(std::memory_order_acquire) == wait.tx->next) {
      continue;
    }
    // It may have sent everything before it left: look once more.
    Operation::Wait again;
    if (!op.where(&again) || again.link != wait.link || again.number != wait.number) return {};
    return remote_error("rank " + std::to_string(r) +
                        (shrinks ? " has called tr_comm_shrink without "
                                 : " has left (destroyed its communicator or ended) without ") +
                        (wait.for_credit ? "receiving" : "sending") + " what " + describe(op) +
                        " needs");
  }
  return {};
}

// The chain of waits to its root, who is there and who is not, and what has moved. The cause comes
// first: a board has room for the beginning only.
std::string Communicator::hang_report(const Operation& op, std::chrono::nanoseconds waited) {
  std::string text = describe(op);
  if (op.plan().algorithm() != nullptr) text += std::string(" by ") + op.plan().algorithm()->name;
  text += " has waited for " + seconds(waited);
  Operation::Wait wait;
  if (op.where(&wait)) note_wait(op, wait, waited);
  std::vector<RankSnapshot> boards;
  for (int r = 0; r < size_; ++r) boards.push_back(take_snapshot(transport_->board(r)));
  const RankSnapshot& own = boards[static_cast<std::size_t>(rank_)];
  const std::uint64_t operation = operation_of(op);
  const WaitChain chain = wait_chain(boards, rank_);
  const int root = chain.root();
  if (own.wait) {
    text += ": " + wait_words(*own.wait);
    if (op.call.collective == Collective::kSendRecv && op.call.part_of == nullptr) {
      text += own.wait->for_room ? "; unmatched send: the peer has not called receive"
                                 : "; unmatched receive: the peer has not called send";
    }
    const std::vector<int> behind = ranks_behind(boards, root);
    text += "; " + (chain.is_cycle
                        ? rank_list(behind) + " wait for each other, in a circle"
                        : rank_list(behind) + because_of(behind) +
                              (root == own.wait->peer ? "it" : "rank " + std::to_string(root)));
    if (chain.ranks.size() > 2) text += ": " + chain_words(chain);
  }
  if (root != rank_) {
    text += "; rank " + std::to_string(root) + " " +
            rank_words(boards[static_cast<std::size_t>(root)], operation);
  }
  if (operation != kNoOperation) {
    std::vector<int> there, missing;
    for (int r = 0; r < size_; ++r)
      (boards[static_cast<std::size_t>(r)].issued > operation ? there : missing).push_back(r);
    text += "; arrived in operation " + std::to_string(operation) + ": " + rank_list(there) +
            "; not: " + rank_list(missing);
    int described = 0;
    for (const int r : missing) {
      if (r == root || ++described > kMostDescribed) continue;
      text += "; rank " + std::to_string(r) + " " +
              rank_words(boards[static_cast<std::size_t>(r)], operation);
    }
  }
  for (std::size_t i = 0; i < own.links.size(); ++i) {
    text += (i == 0 ? "; moved so far on link " : ", ") + traffic_words(own.links[i]);
  }
  return text;
}

// Deadlines count from the last thing that moved, here or at a rank that this one waits for; the
// report, which costs nobody anything, from the last thing that moved here.
Status Communicator::on_slow_wait(const Operation& op, std::chrono::nanoseconds waited) {
  if (aborted_.load(std::memory_order_acquire)) return async_error();  // pairs with abort
  Operation::Wait wait;
  const bool waits = op.where(&wait);
  if (waits) note_wait(op, wait, waited);
  const auto now = std::chrono::steady_clock::now();
  if (waited < waited_before_) next_look_ = {};  // another wait
  waited_before_ = waited;
  if (waited >= next_look_) {
    next_look_ = waited + std::min<std::chrono::nanoseconds>(waited / 8, kMostBetweenLooks);
    note_elsewhere(op);
    TR_RETURN_IF_ERROR(compare_calls());
    TR_RETURN_IF_ERROR(check_peers(op, waited));
    if (waits && others_moved(wait)) others_moved_at_ = now;
  }
  // A call on the caller's thread takes that thread's deadline; one in a stream took it along.
  const CallDeadline call = &op == &scratch_ ? call_deadline() : op.deadline;
  const std::int64_t timeout_ms = call.timeout_ms >= 0 ? call.timeout_ms : config_.timeout_ms;
  const std::int64_t warn_ms = call.warn_ms >= 0 ? call.warn_ms : config_.warn_ms;
  const auto idle = std::min<std::chrono::nanoseconds>(waited, now - others_moved_at_);
  if (timeout_ms > 0 && idle >= milliseconds(timeout_ms))
    return Status(Code::kTimeout, hang_report(op, waited));
  if (warn_ms > 0 && waited >= milliseconds(warn_ms) && !warned_) {
    warned_ = true;
    TR_LOG_WARN(rank_, "%s", hang_report(op, waited).c_str());
  }
  return {};
}

Status Communicator::on_failure(const Operation&, const Status& cause) {
  std::lock_guard lock(failure_mutex_);
  if (!failure_.ok()) return failure_;  // aborted, or failed before
  failure_ = cause;
  if (cause.code() == Code::kMismatch) {
    // The peer's call may be on the board only now that its message is here; on that of another
    // host, which is a copy, when the peer has answered.
    Status calls = compare_calls();
    const Deadline answers = Deadline::after_ms(kAnswersMs);
    while (calls.ok() && transport_->pump() != nullptr && !answers.expired()) {
      (void)transport_->check_peers();  // asks them
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      calls = compare_calls();
    }
    if (!calls.ok()) failure_ = calls;
  }
  board_->code.store(static_cast<std::uint32_t>(failure_.code()), std::memory_order_relaxed);
  // A rank that only passes on another's failure passes on the other's words.
  std::snprintf(board_->cause, kCauseBytes, "%s", failure_.message().c_str());
  board_->state.store(RankState::kFailed,
                      std::memory_order_release);  // pairs with check_peers of others
  transport_->push_board();
  failed_.store(true, std::memory_order_release);  // pairs with async_error
  if (device_ != nullptr) device_->abort();        // what runs on the other engine ends too
  TR_LOG_WARN(rank_, "%s", failure_.message().c_str());
  save_flight();
  return failure_;
}

void Communicator::on_complete(const Operation& op) {
  warned_ = false;
  if (flight_ != nullptr) flight_->end(op.flight);
  if (op.call.collective == Collective::kSendRecv) return;
  board_->completed.store(op.sequence + 1, std::memory_order_relaxed);
}

}  // namespace treering
