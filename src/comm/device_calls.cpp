// Calls on device memory: from requests to kernels of the device engine, and how they fail.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/signature.hpp"

namespace treering {
namespace {

// CUDA's default stream, cudaStreamLegacy: for the engine, NULL is a stream of its own.
void* const kDefaultStream = reinterpret_cast<void*>(1);

// Does a board show another call than `mine` as one of the operations first..end-1?
bool differs(const Board& mine, const Board& theirs, std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t sequence = first; sequence < end; ++sequence) {
    const BoardOp& a = mine.ops[sequence % kBoardOps];
    const BoardOp& b = theirs.ops[sequence % kBoardOps];
    if (b.sequence.load(std::memory_order_acquire) != sequence + 1)
      continue;  // pairs with post_call
    const std::uint64_t what = b.what.load(std::memory_order_acquire);
    const std::uint64_t count = b.count.load(std::memory_order_acquire);
    const std::uint64_t place = b.place.load(std::memory_order_acquire);
    if (b.sequence.load(std::memory_order_relaxed) != sequence + 1) continue;
    const bool same_count = count == a.count.load(std::memory_order_relaxed) || unpack(what).uneven;
    if (what != a.what.load(std::memory_order_relaxed) || !same_count ||
        place != a.place.load(std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

// Of one launch.
RangeName range_name_of(std::span<const Communicator::Message> messages) {
  const char* const protocol = device_protocol_name(DeviceProtocol::kSimple);
  if (messages.size() == 1) return range_name(*messages.front().request, nullptr, protocol);
  RangeName name{.operation = "sends and recvs", .protocol = protocol, .bytes = 0};
  for (const Communicator::Message& m : messages) {
    name.bytes += m.request->in_bytes + m.request->out_bytes;  // one of them is none
  }
  return name;
}

// Of collectives, the first of which has this plan.
RangeName range_name_of(std::span<Request* const> requests, const DevicePlan& plan) {
  const char* const protocol =
      plan.by_copies ? "copy engines" : device_protocol_name(plan.protocol);
  RangeName name = range_name(*requests.front(), plan.algorithm, protocol);
  if (requests.size() == 1) return name;
  name = RangeName{.operation = "collectives", .bytes = 0};
  for (const Request* r : requests) name.bytes += std::max(r->in_bytes, r->out_bytes);
  return name;
}

// The buffer that peers reach of a call that copy engines serve.
BufferPlace reached_place(const Request& r, bool in_place) {
  const WindowToken& t = r.call.token;
  const bool reaches_in = r.call.collective == Collective::kAllGather ||
                          r.call.collective == Collective::kGather ||
                          r.call.collective == Collective::kAllToAll;
  if (reaches_in && !in_place) return {t.in_window, t.in_offset_bytes, false};
  return {t.out_window, t.out_offset_bytes, in_place};
}

// For on_failure: the last operation issued.
Operation operation_before(std::uint64_t sequence) {
  Operation op;
  op.call.collective = sequence > 0 ? Collective::kBarrier : Collective::kSendRecv;
  op.sequence = sequence - 1;
  return op;
}

}  // namespace

Status Communicator::check_usable() {
  const Status status = async_error();
  return status.ok() ? status : fail_on_device(status);
}

Status Communicator::watch() {
  Status status = async_error();
  if (status.ok()) status = transport_->check_peers();
  // Copies wait for ever for a rank that called something else.
  if (status.ok() && has_copied_.load(std::memory_order_relaxed)) {
    status = compare_calls();
  }
  return status.ok() ? status : fail_on_device(status);
}

// Who has failed, this rank or a peer, lets its copies go on, to whatever end; but first it says
// so.
Status Communicator::settle() {
  const Status status = async_error();
  return status.ok() && !has_copied_.load(std::memory_order_relaxed) ? status : watch();
}

// A CUDA stream for the engine, whose kernels' reports are then errors of `stream`.
void* Communicator::use_stream(Stream* stream) {
  if (stream == nullptr) return nullptr;
  stream->add(shared_from_this());
  return stream->cuda_stream() != nullptr ? stream->cuda_stream() : kDefaultStream;
}

Status Communicator::prepare_on_device(Request& r, DevicePlan* plan) {
  TR_ASSIGN_OR_RETURN(*plan, device_plan_for(r));
  if (plan->by_copies || plan->windows != nullptr) TR_RETURN_IF_ERROR(find_windows(r));
  if (r.cut) {
    constexpr std::uint64_t kCutBytes =
        kSlotAlign;  // as on the host: the same chunks, the same bits
    r.call.in_part = r.call.out_part =
        Partition::cut(r.call.count, plan->chunks, kCutBytes / type_bytes(r.call.type));
  }
  r.call.uneven = r.uneven;
  return {};
}

std::uint64_t Communicator::post_on_device(const Request& r, const DevicePlan& plan,
                                           std::uint64_t place, const Stream* stream) {
  CallKind call_kind = kind_of(r.call);
  call_kind.algorithm = number_of(*algos::find_algorithm(r.call.collective, plan.algorithm));
  const std::uint64_t kind = pack(call_kind);
  const std::uint64_t signature = post_call(kind, r.call.count, place);
  if (stream == nullptr) waited_for_ = sequence_;
  return signature;
}

Status Communicator::start_copy(Request& r, const DevicePlan& plan, Stream* stream) {
  CopyCall copy{algos::find_algorithm(r.call.collective, plan.algorithm), &r.call, &windows_};
  copy.in_place = r.in_place && r.call.collective == Collective::kAllGather;
  const std::uint64_t place = pack(reached_place(r, copy.in_place));
  has_copied_.store(true, std::memory_order_relaxed);
  copy.signature = call_signature(post_on_device(r, plan, place, stream), place, 0);
  return device_->copy(copy, use_stream(stream));
}

// Calls of kernels gather until a copy, or the end.
Status Communicator::enqueue_on_device(std::span<Request* const> requests, Stream* stream,
                                       Range& range) {
  TR_RETURN_IF_ERROR(check_usable());
  std::vector<CollectiveCall> ready;
  std::vector<Footprint> footprints;
  const auto launch_ready = [&]() -> Status {
    if (ready.empty()) return {};
    const Status status = device_->launch(std::exchange(ready, {}), use_stream(stream));
    footprints.clear();
    return status;
  };
  Status refused;  // of a call that cannot be had here: those before it run
  Status failed;
  for (Request* const r : requests) {
    DevicePlan plan;
    refused = prepare_on_device(*r, &plan);
    if (!refused.ok()) break;
    if (r == requests.front()) range.begin(range_owner_, range_name_of(requests, plan));
    if (plan.by_copies) {
      failed = launch_ready();
      if (failed.ok()) failed = start_copy(*r, plan, stream);
      if (!failed.ok()) break;
      continue;
    }
    const Footprint mine = footprint_of(*r);
    const bool shares = std::any_of(footprints.begin(), footprints.end(),
                                    [&](const auto& before) { return must_follow(mine, before); });
    footprints.push_back(mine);
    ready.push_back({&r->call, plan, post_on_device(*r, plan, 0, stream), shares});
  }
  if (failed.ok()) failed = launch_ready();
  return failed.ok() ? refused : fail_on_device(failed);
}

Status Communicator::enqueue_messages(std::span<const Message> messages, Range& range) {
  TR_RETURN_IF_ERROR(check_usable());
  range.begin(range_owner_, range_name_of(messages));
  std::vector<MessageCall> calls;
  std::vector<void*> streams;
  DeviceChoiceInput in = device_choice_input(*messages.front().request);
  for (const Message& m : messages) {
    in.elem_bytes = type_bytes(m.request->call.type);
    in.call.bytes = m.request->in_bytes + m.request->out_bytes;  // one of them is none
    calls.push_back(
        {&m.request->call, sendrecv_signature(m.request->call), message_slice_elems(in)});
    void* const stream = use_stream(m.stream);
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
      streams.push_back(stream);
    }
  }
  const Status status = device_->launch_messages(calls, streams);
  return status.ok() ? status : fail_on_device(status);
}

// What a kernel reports fails the communicator, on every rank: the others read it on the board.
// A kernel that waited in vain, or for a message of another length, does not know who called what;
// the boards do.
Status Communicator::fail_on_device(const Status& cause) {
  if (failed_.load(std::memory_order_acquire)) return async_error();  // pairs with on_failure
  // Not sequence_: a thread that waits for a stream comes here too.
  const Operation last = operation_before(board_->issued.load(std::memory_order_relaxed));
  const Status calls = cause.code() == Code::kTimeout ? compare_calls() : Status{};
  return on_failure(last, calls.ok() ? cause : calls);
}

Status Communicator::wait_for_device() {
  // Lines (LL, LL128) have no room for a signature. Whose messages have come, its calls are on the
  // board.
  const std::uint64_t first =
      std::max(board_->completed.load(std::memory_order_relaxed),
               sequence_ > kBoardOps ? sequence_ - kBoardOps : std::uint64_t{0});
  const auto a_board_differs = [&] {
    for (int r = 0; r < size_; ++r) {
      if (r != rank_ && differs(*board_, transport_->board(r), first, sequence_)) return true;
    }
    return false;
  };
  Spin spin(engine_->spin());
  Backoff backoff(spin);
  Status status;
  for (;;) {
    const Result<bool> idle = device_->is_idle();
    status = idle.ok() ? device_->check() : idle.status();
    if (!status.ok()) break;
    const bool done = idle.value();
    if (done || backoff.pause()) {
      if (a_board_differs()) status = compare_calls();
      if (status.ok() && done && has_copied_.load(std::memory_order_relaxed)) {
        status = async_error();  // see settle
        if (status.ok()) status = transport_->check_peers();
      }
      if (status.ok() && done) {
        board_->completed.store(
            std::max(waited_for_, board_->completed.load(std::memory_order_relaxed)),
            std::memory_order_relaxed);
        return {};
      }
      if (status.ok() && aborted_.load(std::memory_order_acquire)) status = async_error();
      if (status.ok()) status = transport_->check_peers();
      if (!status.ok()) break;
    }
  }
  status = fail_on_device(status);
  (void)device_->drain();  // the buffers are the caller's again when this returns
  return status;
}

Status Communicator::launch_on_device(Request& r, Stream* stream) {
  Range range;
  if (r.call.collective == Collective::kSendRecv) {
    const Message alone{&r, stream};
    TR_RETURN_IF_ERROR(enqueue_messages({&alone, 1}, range));
  } else {
    Request* const alone = &r;
    TR_RETURN_IF_ERROR(enqueue_on_device({&alone, 1}, stream, range));
  }
  return stream == nullptr ? wait_for_device() : Status{};
}

}  // namespace treering
