// Operation: one call of a collective, send or receive while it runs. This is the host executor.
//
// A plan is run round by round: in round b a chunk's slices b*k .. b*k+k-1 are handled, one message
// per slice. Every lane has its own place in the plan, and two rounds of a lane are open at once:
// when the older one waits, the younger one goes on, up to the older one's gate (engine/plan.hpp).
// Double buffering follows from that, and no algorithm mentions it.
//
// progress() never blocks. Threads: one at a time; done() may be read by any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/partition.hpp"
#include "core/status.hpp"
#include "core/types.hpp"
#include "engine/plan.hpp"
#include "engine/reduce.hpp"
#include "transports/transport.hpp"

namespace treering {

// What publish() sends: where this rank's buffers lie in its windows.
struct WindowToken {
  std::uint32_t in_window = 0;
  std::uint32_t out_window = 0;
  std::uint64_t in_offset_bytes = 0;
  std::uint64_t out_offset_bytes = 0;
};

// What was asked for, in the engine's terms. Moved, never copied: partitions may point into tables.
struct Call {
  Call() = default;
  Call(Call&&) = default;
  Call& operator=(Call&&) = default;

  Collective collective = Collective::kAllReduce;
  Type type = Type::kFloat32;
  RedOp op = RedOp::kNone;
  std::int32_t root = 0;    // of sends and receives: the peer
  std::uint64_t count = 0;  // as the caller gave it, for reports and the signature
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  Partition in_part;
  Partition out_part;
  bool wire_is_in = false;        // relays without a local operand take their length from in_part
  bool is_send = false;           // of kSendRecv
  bool uneven = false;            // a v-variant
  const char* part_of = nullptr;  // a call of the library's own: what the user called
  std::uint32_t divisor = 1;
  double factor = 1.0;
  bool scaled = false;  // pre-multiplied sum
  std::shared_ptr<const UserOp> user;
  std::vector<std::uint64_t>
      tables;  // the v-variants' counts and displacements; partitions point here
  WindowToken token;
};

// How the vector is cut for the links; agreed by all ranks.
struct Geometry {
  std::uint64_t slice_elems = 1;
  std::uint32_t slices_per_round = 1;  // k
  std::size_t slot_bytes = 64;
  bool stream_slots = false;  // streaming stores into slots
  bool stream_out = false;    // and into the receive buffer
};

// A deadline of one call, in milliseconds; 0: never; negative: the communicator's.
struct CallDeadline {
  std::int64_t timeout_ms = -1;
  std::int64_t warn_ms = -1;
};

class Operation {
 public:
  // Prepares a run of `plan`. windows: for plans that read or write peers' memory. While is_head is
  // false, first_messages()[i] is the number of this operation's first message on plan link i.
  void start(const Plan& plan, const Geometry& geometry, std::uint64_t signature,
             const std::vector<WindowMap>* windows);
  // Runs the same call again: same plan, geometry and partitions. The caller has set new buffers.
  void rewind(std::uint64_t signature);
  // Overrides the geometry's; before the run.
  void set_stream_slots(bool stream) { geometry_.stream_slots = stream; }
  bool may_stream_slots() const { return geometry_.stream_slots; }
  const Plan& plan() const { return *plan_; }
  std::vector<std::uint64_t>& first_messages() { return first_message_; }
  // How many messages this operation posts or receives on plan link `link`.
  std::uint64_t messages_on(int link) const;

  // Runs until every lane waits or is through. Returns whether anything moved.
  bool progress();
  bool finished() const { return lanes_open_ == 0 || !failure_.ok(); }
  // A broken signature, found on the fly.
  const Status& failure() const { return failure_; }

  // Where the oldest open round of the first waiting lane stands; for reports only.
  struct Wait {
    LinkId link;
    std::uint64_t number = 0;    // of the message waited for
    bool for_credit = false;     // a full link: a reader has not read
    int peer = -1;               // who has not sent, or which reader is furthest behind
    const FifoTx* tx = nullptr;  // then: the link
    Verb verb = Verb::kCopy;
    std::int32_t chunk = 0;
    std::uint32_t slice = 0;  // of the chunk, in this round
    std::uint64_t round = 0;
  };
  bool where(Wait* wait) const;
  // Calls f(rank) for the writers of the messages that waiting lanes lack, until it returns true.
  // Returns whether it did.
  template <class F>
  bool any_missing_writer(F f) const;

  Call call;
  std::uint64_t sequence = 0;  // number within the communicator, from 0
  bool is_head = true;         // no older operation in flight: every link is its turn
  // Grows with every slice: the board's, so that others see whether this rank moves. May be null.
  std::atomic<std::uint64_t>* moves = nullptr;
  CallDeadline deadline;     // of this call alone
  std::uint64_t flight = 0;  // its entry in the flight record, if there is one

 private:
  struct Cursor {
    std::uint64_t round = 0;
    std::int32_t step = 0;
    std::uint32_t slice = 0;
  };
  struct Lane {
    Cursor older, younger;
    bool open = false;
    bool has_younger = false;
  };

  bool advance_lane(const PlanLane& range, Lane& lane);
  // Runs steps from `at` until it waits or reaches `limit`; true if it moved.
  bool run(Cursor& at, std::int32_t limit, const Cursor* older);
  bool run_slice(const PlanStep& step, std::uint64_t slice);
  std::uint64_t step_elems(const PlanStep& step) const;
  std::uint64_t slices_of(const PlanStep& step) const;
  std::byte* peer_out(const PlanOperand& o, std::uint64_t first_elem) const;
  const void* input_address(const PlanOperand& o, std::uint64_t first_elem, std::size_t bytes);
  void* output_address(const PlanOperand& o, std::uint64_t first_elem, std::size_t bytes);
  bool ready(const PlanStep& step, std::size_t bytes) const;
  void fail_signature(const PlanOperand& o);

  const Plan* plan_ = nullptr;
  const std::vector<WindowMap>* windows_ = nullptr;
  Geometry geometry_;
  std::uint64_t signature_ = 0;
  std::uint64_t rounds_ = 0;
  int lanes_open_ = 0;
  std::vector<Lane> lanes_;
  std::vector<std::uint64_t> first_message_;
  std::vector<WindowToken> tokens_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  Status failure_;
};

template <class F>
bool Operation::any_missing_writer(F f) const {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].open) continue;
    const PlanStep& step = plan_->steps()[lanes_[i].older.step];
    const PlanOperand* o = plan_->operands(step);
    for (int j = 0; j < step.inputs; ++j) {
      if (o[j].space != Space::kLink || rx_ready(*o[j].rx)) continue;
      if (f(plan_->links()[o[j].link].id.src)) return true;
    }
  }
  return false;
}

}  // namespace treering
