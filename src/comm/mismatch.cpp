// Did all ranks call the same operations? What boards say of that.
#include <algorithm>
#include <string>

#include "comm/communicator.hpp"
#include "comm/signature.hpp"
#include "comm/snapshot.hpp"

namespace treering {
namespace {

// But for the algorithm.
bool same_call(const PostedCall& a, const PostedCall& b) {
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

// Two ranks' histories are compared at the last operation that both have called: one line of memory
// a rank, however long ago they parted.
int Communicator::rank_of_another_history() const {
  const std::uint64_t issued = board_->issued.load(std::memory_order_relaxed);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const Board& board = transport_->board(r);
    const std::uint64_t common = std::min(issued, board.issued.load(std::memory_order_acquire));
    if (common == 0) continue;
    const std::optional<PostedCall> mine = posted(*board_, common - 1);
    const std::optional<PostedCall> theirs = posted(board, common - 1);
    if (mine && theirs && mine->history != theirs->history) return r;
  }
  return -1;
}

// An error that shows everybody's call. The oldest difference still on the boards is the cause: a
// rank that only sends, such as the wrong root of a broadcast, is through before anybody can
// notice.
Status Communicator::compare_calls() const {
  const int other = rank_of_another_history();
  const bool places_count = has_copied_.load(std::memory_order_relaxed);
  if (other < 0 && !places_count) return {};
  const std::uint64_t issued = board_->issued.load(std::memory_order_relaxed);
  for (std::uint64_t sequence = issued < kBoardOps ? 0 : issued - kBoardOps; sequence < issued;
       ++sequence) {
    const Status status = compare_call(sequence);
    if (!status.ok()) return status;
  }
  if (other < 0) return {};
  return Status(Code::kMismatch,
                "ranks " + std::to_string(rank_) + " and " + std::to_string(other) +
                    " called different operations, more than " + std::to_string(kBoardOps) +
                    " operations ago; TR_FLIGHT_RECORDER=1000 on all ranks keeps enough of them "
                    "to see which");
}

Status Communicator::compare_call(std::uint64_t sequence) const {
  const std::optional<PostedCall> mine = posted(*board_, sequence);
  if (!mine) return {};
  bool calls_differ = false, algorithms_differ = false, places_differ = false;
  std::string calls, algorithms, places;
  for (int r = 0; r < size_; ++r) {
    const std::optional<PostedCall> theirs = posted(transport_->board(r), sequence);
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
                      " (" + to_string(unpack(mine->kind), mine->count, size_) + "):" + algorithms +
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
  return {};
}

// Calls that were over before anybody could see that they differed, such as broadcasts from two
// roots: the last chance to say so, where no later call waits. Any thread.
Status Communicator::check_past_calls() {
  Status status = async_error();
  if (!status.ok()) return {};  // said before
  status = compare_calls();
  if (status.ok()) {
    const Status peers = transport_->check_peers();
    if (peers.code() == Code::kMismatch) status = peers;
  }
  return status.ok() ? status : fail_on_device(status);
}

}  // namespace treering
