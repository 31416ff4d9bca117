// CudaPrims: the verbs inside a kernel. The templates of algos/*.hpp run over it as they stand.
//
// One block runs one lane of one channel; all its threads walk through the algorithm together,
// because control flow depends on ranks and chunk numbers only. step() is the executor's run_slice
// (engine/operation.cpp) for a block: wait for the messages and for room, fold, post and release.
#pragma once

#include "algos/cuda/call.hpp"
#include "algos/cuda/fault.cuh"
#include "algos/cuda/fold.cuh"
#include "algos/cuda/link_set.cuh"
#include "algos/cuda/ptx_memory.cuh"
#include "algos/cuda/wait.cuh"
#include "algos/prims.hpp"

namespace treering::cuda {

using algos::Chunk;
using algos::Last;
using algos::Peers;
using algos::Space;
using algos::Verb;

// What the threads of a block share. Lies in shared memory; without constructors.
struct BlockState {
  // Of this block's channel, loaded once: the collectives' two classes, or the messages' only one.
  DeviceLinkEnds ends[2][kMaxDeviceRanks];
  FoldArgs fold;
  // Where the peers' buffers are, in this process's addresses; the window verbs' (windows.cuh).
  struct Buffers {
    std::byte* in;
    std::byte* out;
  };
  Buffers peers[kMaxDeviceRanks];
  // DeviceReport::State, of a fold with the input (fold_failure). Two, so that no thread can still
  // read the one of the last phase when another writes that of the next one: all must leave at the
  // same barrier.
  std::int32_t gather_failed;
  std::int32_t fold_failed;
  bool junction_failed;  // calls.cuh
};

template <class Protocol>
class CudaPrims : public algos::Verbs<CudaPrims<Protocol>> {
 public:
  // Called by all threads of the block, like everything here.
  // `words`: the launch's table.
  TR_DEVICE CudaPrims(const DeviceContext& context, const DeviceCall& call,
                      const std::uint64_t* words, BlockState& state, int lane, int channel);
  TR_DEVICE void begin_round(std::uint64_t round) { round_ = round; }
  // The call, from now on: a send or receive of several (algos/cuda/messages.cuh). A round is a
  // slice.
  TR_DEVICE void begin_message(const DeviceMessage& message);
  TR_DEVICE bool failed() const { return failed_; }
  TR_DEVICE void finish();  // the links' numbers go back to memory

  TR_DEVICE int rank() const { return context_.rank; }
  TR_DEVICE int size() const { return context_.size; }
  TR_DEVICE int root() const { return root_; }
  TR_DEVICE bool lane(int i) const { return i == lane_; }

  TR_DEVICE LinkSet nobody() const { return {}; }
  TR_DEVICE LinkSet nowhere() const { return {}; }
  TR_DEVICE LinkSet from(int q, int channel = 0) const { return LinkSet::one(q, channel); }
  TR_DEVICE LinkSet to(int q, int channel = 0) const { return LinkSet::one(q, channel); }
  TR_DEVICE LinkSet from(const Peers& p, int channel = 0) const { return LinkSet::few(p, channel); }
  TR_DEVICE LinkSet to(const Peers& p, int channel = 0) const { return LinkSet::few(p, channel); }
  TR_DEVICE LinkSet from_ranks(int a, int b) const { return range(a, b, DeviceLinkClass::kPair0); }
  TR_DEVICE LinkSet to_ranks(int a, int b) const { return range(a, b, DeviceLinkClass::kPair0); }
  TR_DEVICE LinkSet from_each() const { return from_ranks(0, size()); }
  TR_DEVICE LinkSet to_each() const { return to_ranks(0, size()); }
  // On a GPU a one-to-many link is a store to every reader's slots: a block stores from registers,
  // and every reader then reads its own memory.
  TR_DEVICE LinkSet to_all() const { return range(0, size(), DeviceLinkClass::kPair1); }
  TR_DEVICE LinkSet from_all_casts() const { return to_all(); }
  TR_DEVICE LinkSet from_cast(int q) const { return LinkSet::one(q, 1); }

  // The window verbs (windows.cuh).
  TR_DEVICE void publish();
  TR_DEVICE void await_all();
  TR_DEVICE void reduce_from_all(int chunk, Last last) {
    step(Verb::kReduceFromAll, LinkSet::windows(0, size(), rank()), algos::in(chunk),
         algos::out(chunk), nowhere(), last);
  }
  TR_DEVICE void reduce_store_all(int chunk, Last last) {
    const LinkSet others = LinkSet::windows(0, size(), rank());
    step(Verb::kReduceStoreAll, others, algos::in(chunk), algos::out(chunk), others, last);
  }
  TR_DEVICE void copy_from(int q, int chunk) {
    step(Verb::kCopyFrom, LinkSet::windows(q, q + 1, rank()), Chunk{}, algos::out(chunk), nowhere(),
         Last::kNo);
  }

  // Where all code of an algorithm meets: one function for all kernels of a protocol. What it
  // holds, the fold of every type and operator, would make each kernel as large as all are
  // together.
  TR_DEVICE_SHARED void step(Verb verb, const LinkSet& from, Chunk local, Chunk dst,
                             const LinkSet& to, Last last);

  // Of the links of messages, whose numbers thread 0 keeps: could it go on now?
  TR_DEVICE bool can_move(const DeviceMessage& message) {
    DeviceLinkEnds& mine = state_.ends[0][message.peer];
    return message.is_send ? has_room(mine.tx) : has_message(mine.rx);
  }
  TR_DEVICE void give_up_message(DeviceReport::State why, const DeviceMessage& message,
                                 std::uint64_t slice);

 private:
  TR_DEVICE static bool has_room(DeviceTx& tx) {
    if (tx.next - tx.released < kDeviceSlots) return true;
    tx.released = load_acquire(tx.head);  // pairs with run_slice of the reader
    return tx.next - tx.released < kDeviceSlots;
  }
  TR_DEVICE static bool has_message(const DeviceRx& rx) {
    // Pairs with run_slice of the writer.
    return load_acquire(&rx.tail[rx.next % kDeviceSlots].number) == rx.next + 1;
  }
  TR_DEVICE bool is_messages() const { return call_.collective == Collective::kSendRecv; }
  TR_DEVICE DeviceLinkEnds& stored_ends(int i) const {  // ends[i / size][i % size] at rest
    const auto cls = is_messages() ? DeviceLinkClass::kSendRecv : DeviceLinkClass(i / size());
    const DeviceLinkTable& links = context_.links;
    return links.ends[links.index(Protocol::kId, channel_, cls, i % size())];
  }
  // Of what other lanes use, whole numbers, but not of one moment.
  TR_DEVICE static DeviceLinkEnds load_ends(const DeviceLinkEnds& e) {
    return {
        {e.tx.slots, e.tx.tail, e.tx.head, load_relaxed(&e.tx.next), load_relaxed(&e.tx.released)},
        {e.rx.slots, e.rx.tail, e.rx.head, load_relaxed(&e.rx.next)}};
  }
  TR_DEVICE int num_ends() const { return (is_messages() ? 1 : 2) * size(); }
  TR_DEVICE LinkSet range(int first, int end, DeviceLinkClass cls) const {
    return LinkSet::range(first, end, rank(), cls);
  }
  TR_DEVICE DeviceLinkEnds& ends(const LinkSet& set, int i) const {
    return state_.ends[static_cast<int>(set.cls)][set.peer(i)];
  }
  // One thread serves a link, always the same one: what it knows of the link needs no barrier.
  TR_DEVICE bool serves(const LinkSet& set, int i, bool tx) const {
    if (is_messages()) return thread_id() == 0;  // can_move
    return (2 * set.peer(i) + (tx ? 1 : 0)) % block_threads() == thread_id();
  }
  // Of the i-th source among the inputs of a fold: the own one has its place among those of lower
  // and higher ranks.
  TR_DEVICE int place(const LinkSet& from, int i, bool has_local) const {
    return i + (has_local && from.peer(i) > rank() ? 1 : 0);
  }
  TR_DEVICE std::uint64_t step_elems(Chunk local, Chunk dst) const;
  TR_DEVICE void run_slice(Verb verb, const LinkSet& from, Chunk local, Chunk dst,
                           const LinkSet& to, bool last, std::uint64_t first_elem,
                           std::uint64_t elems);
  TR_DEVICE void gather_links(Verb verb, const LinkSet& from, bool has_local, int chunk,
                              const LinkSet& to);
  // The same for peers' memory, where nothing is waited for: await_all has.
  TR_DEVICE void gather_windows(const LinkSet& from, bool has_local, int chunk, const LinkSet& to,
                                std::uint64_t first_elem);
  // By the thread that serves the link. False: it has given up.
  TR_DEVICE bool wait_for_room(Verb verb, DeviceTx& tx, int peer, int chunk);
  TR_DEVICE bool wait_for_message(Verb verb, const DeviceRx& rx, int peer, int chunk);
  TR_DEVICE std::byte* slot_of(const DeviceTx& tx) const {
    return tx.slots + tx.next % kDeviceSlots * slot_bytes();
  }
  TR_DEVICE const std::byte* slot_of(const DeviceRx& rx) const {
    return rx.slots + rx.next % kDeviceSlots * slot_bytes();
  }
  TR_DEVICE std::uint32_t slot_bytes() const {
    return context_.links.slot_bytes[static_cast<int>(Protocol::kId)];
  }
  // After a barrier that follows the stores of all threads.
  TR_DEVICE void post(DeviceTx& tx);
  TR_DEVICE static void release(DeviceRx& rx) {
    store_release(rx.head, ++rx.next);  // pairs with has_room of the writer
  }
  // Of a message of so many bytes; the next one's.
  TR_DEVICE void sign(std::uint64_t bytes) {
    signature_ = call_signature_ + bytes * 0x9E3779B97F4A7C15ull;
  }
  TR_DEVICE void give_up_on_input(Verb verb, const LinkSet& from, bool has_local, int chunk);
  TR_DEVICE void give_up(DeviceReport::State why, Verb verb, bool for_credit, int peer, int chunk,
                         std::uint64_t number);

  const DeviceContext& context_;
  const DeviceCall& call_;
  const std::uint64_t* words_;
  BlockState& state_;
  // Of the call, or of the message at hand.
  const std::byte* in_;
  std::byte* out_;
  Partition in_part_;
  Partition out_part_;
  std::uint64_t slice_elems_;
  std::uint64_t call_signature_;
  Type type_;
  std::int32_t root_;

  std::uint64_t round_ = 0;
  std::uint64_t signature_ = 0;  // of the slice at hand
  bool failed_ = false;          // the same in all threads
  int lane_ = 0;
  int channel_ = 0;
};

template <class Protocol>
TR_DEVICE CudaPrims<Protocol>::CudaPrims(const DeviceContext& context, const DeviceCall& call,
                                         const std::uint64_t* words, BlockState& state, int lane,
                                         int channel)
    : context_(context),
      call_(call),
      words_(words),
      state_(state),
      in_(call.in),
      out_(call.out),
      in_part_(call.in_part.rebased(call.words_from, words + call.words_at)),
      out_part_(call.out_part.rebased(call.words_from, words + call.words_at)),
      slice_elems_(call.slice_elems),
      call_signature_(call.signature),
      type_(call.type),
      root_(call.root),
      lane_(lane),
      channel_(channel) {
  for (int i = thread_id(); i < num_ends(); i += block_threads()) {
    state.ends[i / size()][i % size()] = load_ends(stored_ends(i));
  }
  if (thread_id() == 0) state.gather_failed = state.fold_failed = DeviceReport::kFine;
  barrier_sync(0, block_threads());
}

template <class Protocol>
TR_DEVICE void CudaPrims<Protocol>::begin_message(const DeviceMessage& message) {
  in_ = out_ = message.data;
  in_part_ = out_part_ = Partition::alone(message.elems);
  slice_elems_ = message.slice_elems;
  call_signature_ = message.signature;
  type_ = message.type;
  root_ = message.peer;
}

template <class Protocol>
TR_DEVICE void CudaPrims<Protocol>::finish() {
  barrier_sync(0, block_threads());
  for (int i = thread_id(); i < num_ends(); i += block_threads()) {
    const DeviceLinkEnds& mine = state_.ends[i / size()][i % size()];
    DeviceLinkEnds& stored = stored_ends(i);
    // Another lane's block may have moved, or move just now, the ends that this one did not use.
    if (mine.tx.next > load_relaxed(&stored.tx.next)) {
      store_relaxed(&stored.tx.next, mine.tx.next);
      store_relaxed(&stored.tx.released, mine.tx.released);
    }
    if (mine.rx.next > load_relaxed(&stored.rx.next)) store_relaxed(&stored.rx.next, mine.rx.next);
  }
}

// As Plan says (engine/plan.hpp, sized_by): by the first operand that is the caller's.
template <class Protocol>
TR_DEVICE std::uint64_t CudaPrims<Protocol>::step_elems(Chunk local, Chunk dst) const {
  const Chunk c = local.space != Space::kNone ? local : dst;
  if (c.space == Space::kIn) return in_part_.elems(c.index);
  if (c.space == Space::kOut) return out_part_.elems(c.index);
  return call_.wire_is_in ? in_part_.elems(c.index) : out_part_.elems(c.index);
}

template <class Protocol>
TR_DEVICE_SHARED void CudaPrims<Protocol>::step(Verb verb, const LinkSet& from, Chunk local,
                                                Chunk dst, const LinkSet& to, Last last) {
  const std::uint64_t total = step_elems(local, dst);
  for (std::uint32_t k = 0; k < call_.slices_per_round; ++k) {
    const std::uint64_t first = (round_ * call_.slices_per_round + k) * slice_elems_;
    if (first >= total || failed()) return;
    const std::uint64_t left = total - first;
    run_slice(verb, from, local, dst, to, last == Last::kYes, first,
              left < slice_elems_ ? left : slice_elems_);
  }
}

template <class Protocol>
TR_DEVICE bool CudaPrims<Protocol>::wait_for_room(Verb verb, DeviceTx& tx, int peer, int chunk) {
  const DeviceReport::State why = wait_until(context_, [&] { return has_room(tx); });
  if (why != DeviceReport::kFine) give_up(why, verb, true, peer, chunk, tx.next);
  return why == DeviceReport::kFine;
}

template <class Protocol>
TR_DEVICE bool CudaPrims<Protocol>::wait_for_message(Verb verb, const DeviceRx& rx, int peer,
                                                     int chunk) {
  DeviceReport::State why = wait_until(context_, [&] { return has_message(rx); });
  if (why == DeviceReport::kFine &&
      load_relaxed(&rx.tail[rx.next % kDeviceSlots].signature) != signature_) {
    why = DeviceReport::kMismatch;
  }
  if (why != DeviceReport::kFine) give_up(why, verb, false, peer, chunk, rx.next);
  return why == DeviceReport::kFine;
}

template <class Protocol>
TR_DEVICE void CudaPrims<Protocol>::post(DeviceTx& tx) {
  if constexpr (Protocol::kHasTail) {
    DeviceTail& tail = tx.tail[tx.next % kDeviceSlots];
    store_relaxed(&tail.signature, signature_);
    if constexpr (kFault == Fault::kRelaxedPost) {
      store_relaxed(&tail.number, tx.next + 1);
    } else {
      store_release(&tail.number, tx.next + 1);  // pairs with has_message
    }
  }
  ++tx.next;
}

// One thread a link: wait for its message, or for room, and say where the slot is.
template <class Protocol>
TR_DEVICE void CudaPrims<Protocol>::gather_links(Verb verb, const LinkSet& from, bool has_local,
                                                 int chunk, const LinkSet& to) {
  for (int i = 0; i < to.count; ++i) {
    if (!serves(to, i, true)) continue;
    DeviceTx& tx = ends(to, i).tx;
    (void)wait_for_room(verb, tx, to.peer(i), chunk);
    state_.fold.outputs[i] = {slot_of(tx), tx.next + 1};
  }
  for (int i = 0; i < from.count; ++i) {
    if (!serves(from, i, false)) continue;
    const DeviceRx& rx = ends(from, i).rx;
    if constexpr (Protocol::kHasTail) (void)wait_for_message(verb, rx, from.peer(i), chunk);
    state_.fold.inputs[place(from, i, has_local)] = {const_cast<std::byte*>(slot_of(rx)),
                                                     rx.next + 1};
  }
}

template <class Protocol>
TR_DEVICE void CudaPrims<Protocol>::run_slice(Verb verb, const LinkSet& from, Chunk local,
                                              Chunk dst, const LinkSet& to, bool last,
                                              std::uint64_t first_elem, std::uint64_t elems) {
  const std::size_t elem_bytes = type_bytes(type_);
  const std::uint64_t bytes = elems * elem_bytes;
  const bool has_local = local.space == Space::kIn || local.space == Space::kOut;
  const bool has_dst = dst.space == Space::kOut;
  const int chunk = has_dst ? dst.index : local.index;
  sign(bytes);
  FoldArgs& fold = state_.fold;
  if (Protocol::kHasTail && from.is_windows) {
    gather_windows(from, has_local, chunk, to, first_elem);
  } else {
    gather_links(verb, from, has_local, chunk, to);
  }
  int lower = 0;
  for (int i = 0; i < from.count; ++i) lower += from.peer(i) < rank() ? 1 : 0;
  const bool scaled = call_.scaled && local.space == Space::kIn;
  const std::uint32_t divisor = last ? call_.divisor : 1;
  const int inputs = from.count + (has_local ? 1 : 0), outputs = to.count + (has_dst ? 1 : 0);
  const bool moves = inputs == 1 && !scaled && divisor == 1;
  const std::byte* const source =
      !has_local ? nullptr
      : local.space == Space::kIn
          ? in_ + (in_part_.offset(local.index) + first_elem) * elem_bytes
          : out_ + (out_part_.offset(local.index) + first_elem) * elem_bytes;
  std::byte* const target =
      has_dst ? out_ + (out_part_.offset(dst.index) + first_elem) * elem_bytes : nullptr;
  if (thread_id() == 0) {
    if (has_local) fold.inputs[lower] = {const_cast<std::byte*>(source), 0};
    if (has_dst) fold.outputs[to.count] = {target, 0};
    fold.num_inputs = inputs;
    fold.num_outputs = outputs;
    fold.bytes = bytes;
    fold.scaled_input = scaled ? lower : -1;
    fold.divisor = divisor;
  }
  barrier_sync(0, block_threads());
  failed_ = state_.gather_failed != DeviceReport::kFine;
  if (failed_) return;

  const bool onto_itself = moves && outputs == 1 && source != nullptr && source == target;
  if (!onto_itself) {
    treering::cuda::fold(Protocol::access(fold, context_, &state_.fold_failed), fold, type_,
                         moves ? RedOp::kNone : call_.op, call_.factor);
  }
  if constexpr (!Protocol::kHasTail) {
    for (int i = 0; i < to.count; ++i) Protocol::cover(fold.outputs[i], bytes, slot_bytes());
  }
  if constexpr (kFault != Fault::kNoBarrierBeforePost) barrier_sync(0, block_threads());
  failed_ = state_.fold_failed != DeviceReport::kFine;
  if (failed_) {
    if (thread_id() == 0) give_up_on_input(verb, from, has_local, chunk);
    return;
  }
  if (Protocol::kHasTail && from.is_windows) return;  // publish says it

  for (int i = 0; i < to.count; ++i) {
    if (serves(to, i, true)) post(ends(to, i).tx);
  }
  for (int i = 0; i < from.count; ++i) {
    if (serves(from, i, false)) release(ends(from, i).rx);
  }
}

// A protocol without tails waits in the fold, by all threads.
template <class Protocol>
TR_DEVICE void CudaPrims<Protocol>::give_up_on_input(Verb verb, const LinkSet& from, bool has_local,
                                                     int chunk) {
  const int input = failure_input(state_.fold_failed);
  for (int i = 0; i < from.count; ++i) {
    if (place(from, i, has_local) != input) continue;
    give_up(failure_state(state_.fold_failed), verb, false, from.peer(i), chunk,
            state_.fold.inputs[input].flag - 1);
  }
}

template <class Protocol>
TR_DEVICE void CudaPrims<Protocol>::give_up(DeviceReport::State why, Verb verb, bool for_credit,
                                            int peer, int chunk, std::uint64_t number) {
  DeviceReport& report = context_.reports[block_id()];
  report.verb = static_cast<std::uint8_t>(verb);
  report.for_credit = for_credit ? 1 : 0;
  report.channel = static_cast<std::uint16_t>(channel_);
  report.peer = peer;
  report.chunk = chunk;
  report.number = number;
  report.round = round_;
  report.elems = is_messages() ? in_part_.elems(0) : 0;
  report.call = call_.number;
  report.collective = call_.collective;
  report.type = type_;
  store_release(&report.state, static_cast<std::uint32_t>(why));
  state_.gather_failed = static_cast<std::int32_t>(why);
}

template <class Protocol>
TR_DEVICE void CudaPrims<Protocol>::give_up_message(DeviceReport::State why,
                                                    const DeviceMessage& message,
                                                    std::uint64_t slice) {
  begin_message(message);
  begin_round(slice);
  const DeviceLinkEnds& mine = state_.ends[0][message.peer];
  give_up(why, message.is_send ? Verb::kSend : Verb::kRecv, message.is_send, message.peer, 0,
          message.is_send ? mine.tx.next : mine.rx.next);
}

}  // namespace treering::cuda
