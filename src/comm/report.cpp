// What a communicator says when something goes wrong: who did what, who waits for whom.
#include <algorithm>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "comm/signature.hpp"
#include "core/log.hpp"
#include "tuner/device_choice.hpp"

namespace treering {
namespace {

struct Posted {
  std::uint64_t kind = 0;
  std::uint64_t count = 0;
  std::uint64_t place = 0;
};

// What `board`'s rank called as its operation `sequence`; nothing if it is not there yet or no
// more.
std::optional<Posted> posted(const Board& board, std::uint64_t sequence) {
  const BoardOp& entry = board.ops[sequence % kBoardOps];
  if (entry.sequence.load(std::memory_order_acquire) != sequence + 1)
    return std::nullopt;  // pairs with prepare
  Posted p{entry.what.load(std::memory_order_acquire), entry.count.load(std::memory_order_acquire),
           entry.place.load(std::memory_order_acquire)};
  if (entry.sequence.load(std::memory_order_relaxed) != sequence + 1) return std::nullopt;
  return p;
}

std::string seconds(std::chrono::nanoseconds t) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(t).count());
  return text;
}

// But for the algorithm.
bool same_call(const Posted& a, const Posted& b) {
  CallKind kind_a = unpack(a.kind), kind_b = unpack(b.kind);
  kind_a.algorithm = kind_b.algorithm = 0;
  return pack(kind_a) == pack(kind_b) && (a.count == b.count || kind_a.uneven);
}

std::string place_text(std::uint64_t packed) {
  const BufferPlace p = unpack_place(packed);
  return "window " + std::to_string(p.window) + ", byte " + std::to_string(p.offset_bytes) +
         (p.in_place ? ", in place" : "");
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

// Different calls on different ranks: said as soon as somebody waits for long, with everybody's
// call. The oldest difference still on the boards is the cause: a rank that only sends, such as the
// wrong root of a broadcast, is through before anybody can notice.
Status Communicator::check_same_call(const Operation& op) {
  if (op.call.collective == Collective::kSendRecv) return {};
  const std::uint64_t oldest = op.sequence < kBoardOps ? 0 : op.sequence - kBoardOps + 1;
  for (std::uint64_t sequence = oldest; sequence <= op.sequence; ++sequence) {
    const std::optional<Posted> mine = posted(*board_, sequence);
    if (!mine) continue;
    bool calls_differ = false, algorithms_differ = false, places_differ = false;
    std::string calls, algorithms, places;
    for (int r = 0; r < size_; ++r) {
      const std::optional<Posted> theirs = posted(transport_->board(r), sequence);
      if (!theirs) continue;
      calls_differ |= !same_call(*mine, *theirs);
      algorithms_differ |= mine->kind != theirs->kind;
      places_differ |= mine->place != 0 && theirs->place != 0 && mine->place != theirs->place;
      const std::string rank = " rank " + std::to_string(r) + ": ";
      calls += rank + to_string(unpack(theirs->kind), theirs->count, size_) + ";";
      algorithms += rank + algorithm_name(unpack(theirs->kind)) + ";";
      places += rank + place_text(theirs->place) + ";";
    }
    if (calls_differ) {
      calls.pop_back();
      return Status(Code::kMismatch, "ranks called different operations as operation " +
                                         std::to_string(sequence) + ":" + calls);
    }
    if (algorithms_differ) {
      return Status(Code::kMismatch,
                    "ranks ran different algorithms for operation " + std::to_string(sequence) +
                        " (" + to_string(unpack(mine->kind), mine->count, size_) +
                        "):" + algorithms +
                        " force the same on all ranks, and pass registered buffers "
                        "on all of them or on none");
    }
    if (places_differ) {
      places.pop_back();
      return Status(Code::kMismatch,
                    "ranks passed buffers at different places for operation " +
                        std::to_string(sequence) + " (" +
                        to_string(unpack(mine->kind), mine->count, size_) + "):" + places +
                        ": copy engines need the same window and place in it on all ranks; "
                        "TR_CUDA_COPY_ENGINE=0 does without them");
    }
  }
  return {};
}

// Dead, failed or aborted peers, and peers that left while this rank still waits for them.
Status Communicator::check_peers(const Operation& op, std::chrono::nanoseconds waited) {
  Status status = transport_->check_peers();
  if (!status.ok()) {
    // A peer that failed by a mismatch has the same calls on the board as everybody: say them all.
    if (status.code() == Code::kMismatch) {
      const Status calls = check_same_call(op);
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

std::string Communicator::hang_report(const Operation& op, std::chrono::nanoseconds waited) {
  std::string text = describe(op) + " has waited for " + seconds(waited);
  Operation::Wait wait;
  if (op.where(&wait)) {
    text += ": rank " + std::to_string(rank_) +
            (wait.for_credit ? " waits for room on link " : " waits for message ") +
            (wait.for_credit ? "" : std::to_string(wait.number) + " of link ") +
            to_string(wait.link) + " (" + algos::verb_name(wait.verb) + ", chunk " +
            std::to_string(wait.chunk) + ", round " + std::to_string(wait.round) + ")";
    if (op.call.collective == Collective::kSendRecv && op.call.part_of == nullptr) {
      text += wait.for_credit ? "; unmatched send: the peer has not called receive"
                              : "; unmatched receive: the peer has not called send";
    }
  }
  for (int r = 0; r < size_; ++r) {
    Board& board = transport_->board(r);
    const std::uint64_t issued = board.issued.load(std::memory_order_relaxed);
    text += "; rank " + std::to_string(r);
    const bool collective = op.call.collective != Collective::kSendRecv;
    if (collective && issued <= op.sequence) {
      text += " has not called it (its last operation: ";
      const std::optional<Posted> last = issued > 0 ? posted(board, issued - 1) : std::nullopt;
      text += last ? std::to_string(issued - 1) + ", " +
                         to_string(unpack(last->kind), last->count, size_)
                   : "none";
      text += ")";
    } else if (const std::uint64_t link = board.waiting_link.load(std::memory_order_relaxed);
               link != 0) {
      text += " waits on link " + to_string(unpack_link(link));
    } else {
      const std::uint64_t completed = board.completed.load(std::memory_order_relaxed);
      text += " has completed " + std::to_string(completed) + " of " + std::to_string(issued) +
              " operations";
    }
  }
  return text;
}

Status Communicator::on_slow_wait(const Operation& op, std::chrono::nanoseconds waited) {
  if (aborted_.load(std::memory_order_acquire)) return async_error();  // pairs with abort
  Operation::Wait wait;
  if (op.where(&wait)) {
    board_->waiting_number.store(wait.number, std::memory_order_relaxed);
    board_->waiting_link.store(pack(wait.link), std::memory_order_relaxed);
  }
  TR_RETURN_IF_ERROR(check_same_call(op));
  TR_RETURN_IF_ERROR(check_peers(op, waited));
  const auto waited_ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
  if (waited_ms >= config_.timeout_ms) return Status(Code::kTimeout, hang_report(op, waited));
  if (config_.warn_ms > 0 && waited_ms >= config_.warn_ms && !warned_) {
    warned_ = true;
    TR_LOG_WARN(rank_, "%s", hang_report(op, waited).c_str());
  }
  return {};
}

Status Communicator::on_failure(const Operation& op, const Status& cause) {
  std::lock_guard lock(failure_mutex_);
  if (!failure_.ok()) return failure_;  // aborted, or failed before
  failure_ = cause;
  if (cause.code() == Code::kMismatch) {
    // The peer's call may be on the board only now that its message is here.
    const Status calls = check_same_call(op);
    if (!calls.ok()) failure_ = calls;
  }
  board_->code.store(static_cast<std::uint32_t>(failure_.code()), std::memory_order_relaxed);
  // A rank that only passes on another's failure passes on the other's words.
  std::snprintf(board_->cause, kCauseBytes, "%s", failure_.message().c_str());
  board_->state.store(RankState::kFailed,
                      std::memory_order_release);  // pairs with check_peers of others
  failed_.store(true, std::memory_order_release);  // pairs with async_error
  if (device_ != nullptr) device_->abort();        // what runs on the other engine ends too
  TR_LOG_WARN(rank_, "%s", failure_.message().c_str());
  return failure_;
}

void Communicator::on_complete(const Operation& op) {
  if (op.call.collective == Collective::kSendRecv) return;
  board_->completed.store(op.sequence + 1, std::memory_order_relaxed);
  board_->waiting_link.store(0, std::memory_order_relaxed);
  warned_ = false;
}

namespace {

bool has_window_algorithm(Collective collective) {
  const auto all = algos::all_algorithms();
  return std::any_of(all.begin(), all.end(), [&](const algos::Algorithm& a) {
    return a.windows && a.collective == collective;
  });
}

}  // namespace

const char* Communicator::explain() {
  std::string text = "communicator: rank " + std::to_string(rank_) + " of " +
                     std::to_string(size_) + ", transport " + transport_->name() + ", " +
                     std::to_string(engine_->spin()) + " polls before a wait yields, timeout " +
                     std::to_string(config_.timeout_ms / 1000) + " s\n";
  text += "memory: " + std::to_string(transport_->mapped_bytes() >> 10) + " KiB mapped, " +
          std::to_string(transport_->resident_bytes() >> 10) +
          " KiB resident so far; kernels: " + reduce_target_name() + "\n";
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) text += "to rank " + std::to_string(r) + ": " + transport_->describe(r) + "\n";
  }
  if (device_ != nullptr) {
    for (int r = 0; r < size_; ++r) {
      if (r != rank_)
        text += "on the device, to rank " + std::to_string(r) + ": " +
                device_->links().describe(r) + "\n";
    }
    text += "on the device: channels " + std::to_string(device_->links().table().channels) +
            (why_fewer_channels_.empty() ? "" : ", fewer than usual: " + why_fewer_channels_) +
            "\n";
    const std::string& why = device_->links().why_no_ll128();
    if (!why.empty()) text += "no protocol LL128: " + why + "\n";
    if (!why_no_copies_.empty()) {
      text += "no copies by copy engines: " + why_no_copies_ + "\n";
    } else if (config_.copy_engine == 0) {
      text += "no copies by copy engines: not asked for (TR_OPT_COPY_ENGINE)\n";
    }
  }
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (collective == Collective::kSendRecv) continue;
    Request r;
    r.call.collective = collective;
    ChoiceInput in;
    in.collective = collective;
    in.size = size_;
    in.ordered = config_.ordered;
    in.link_bytes = transport_->link_data_bytes(LinkId::Kind::kPair);
    in.cast_bytes = transport_->link_data_bytes(LinkId::Kind::kCast);
    in.forced = forced_[c].empty() ? nullptr : forced_[c].c_str();
    text += std::string(collective_name(collective)) + ":\n" + explain_choices(in);
    if (device_ != nullptr) {
      text += " on the device:\n" + explain_device_choices(device_choice_input(in, 1));
    }
    if (local_windows_.empty() || !has_window_algorithm(collective)) continue;
    in.windows = true;
    text += " with registered buffers:\n" + explain_choices(in);
    if (device_ != nullptr) {
      text += " with registered buffers on the device:\n" +
              explain_device_choices(device_choice_input(in, 1));
    }
  }
  explanation_ = std::move(text);
  return explanation_.c_str();
}

}  // namespace treering
