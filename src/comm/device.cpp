// Calls on device memory: from a request to a kernel of the device engine.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/signature.hpp"
#include "core/log.hpp"
#include "engine/device_room.hpp"
#include "transports/exchange.hpp"

namespace treering {
namespace {

// CUDA's default stream, cudaStreamLegacy: for the engine, NULL is a stream of its own.
void* const kDefaultStream = reinterpret_cast<void*>(1);

// The first failure of any rank, which all learn; the error of the result: they could not.
struct Failure {
  bool happened = false;
  Status status;
};
Result<Failure> first_failure(Rendezvous& rendezvous, const Status& mine) {
  std::string blob = mine.message();
  if (!mine.ok()) blob.insert(blob.begin(), static_cast<char>(mine.code()));
  TR_ASSIGN_OR_RETURN(const std::vector<std::string> all, rendezvous.all_gather(blob));
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    return Failure{true,
                   Status(Code(all[r][0]), "rank " + std::to_string(r) + ": " + all[r].substr(1))};
  }
  return Failure{};
}

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

// The buffer that peers reach of a call that copy engines serve.
BufferPlace reached_place(const Request& r, bool in_place) {
  const WindowToken& t = r.call.token;
  const bool reaches_in = r.call.collective == Collective::kAllGather ||
                          r.call.collective == Collective::kGather ||
                          r.call.collective == Collective::kAllToAll;
  if (reaches_in && !in_place) return {t.in_window, t.in_offset_bytes, false};
  return {t.out_window, t.out_offset_bytes, in_place};
}

// For check_same_call: the last operation issued.
Operation operation_before(std::uint64_t sequence) {
  Operation op;
  op.call.collective = sequence > 0 ? Collective::kBarrier : Collective::kSendRecv;
  op.sequence = sequence - 1;
  return op;
}

}  // namespace

// Blocks of all ranks must find room on their GPUs. True: the kernels cannot be had, and all ranks
// do without GPUs.
Result<bool> Communicator::fit_channels(Rendezvous& rendezvous, int* channels) {
  const int forced = static_cast<int>(config_.cuda_channels);
  *channels = forced > 0 ? forced : kMostChannels;
  const Result<std::vector<DeviceRoom>> rooms =
      exchange(rendezvous, has_devices() ? device_room() : Result<DeviceRoom>(DeviceRoom{}));
  if (!rooms.ok()) {
    // Once more all of them: then it is agreed, and no rank is gone.
    TR_RETURN_IF_ERROR(rendezvous.all_gather("").status());
    if (config_.cuda_strict) return rooms.status();
    TR_LOG_WARN(rank_, "GPU memory is not used between ranks: %s",
                rooms.status().message().c_str());
    return true;
  }
  const auto has_none = [](const DeviceRoom& room) { return room.bus_id[0] == '\0'; };
  const std::vector<DeviceRoom>& all = rooms.value();
  if (size_ > kMaxDeviceRanks || std::any_of(all.begin(), all.end(), has_none)) return false;
  TR_ASSIGN_OR_RETURN(const ChannelChoice choice, choose_channels(all, *channels));
  if (forced > choice.channels) {
    return unsupported("TR_CUDA_CHANNELS=" + std::to_string(forced) + " does not fit: " +
                       choice.why + "; " + std::to_string(choice.channels) + " would");
  }
  *channels = choice.channels;
  why_fewer_channels_ = choice.why;
  if (rank_ == 0 && !choice.why.empty()) {
    TR_LOG_INFO(rank_, "%d channels instead of %d: %s", choice.channels, kMostChannels,
                choice.why.c_str());
  }
  return false;
}

Status Communicator::connect_devices(Rendezvous& rendezvous) {
  if (!config_.cuda) return {};
  DeviceLinkOptions options;
  TR_ASSIGN_OR_RETURN(const bool do_without, fit_channels(rendezvous, &options.channels));
  if (do_without) return {};
  if (config_.cuda_slot_bytes > 0) {
    options.slot_bytes[static_cast<int>(DeviceProtocol::kSimple)] =
        static_cast<std::uint32_t>(config_.cuda_slot_bytes);
  }
  options.host_id = config_.host_id;
  options.strict = config_.cuda_strict;
  options.timeout_ms = static_cast<int>(config_.init_timeout_ms);
  TR_ASSIGN_OR_RETURN(std::unique_ptr<DeviceLinks> links, connect_device(rendezvous, options));
  if (links == nullptr) return {};
  Result<std::unique_ptr<DeviceEngine>> made =
      make_device_engine(std::move(links), config_.timeout_ms);
  // All ranks have a device engine or none.
  TR_ASSIGN_OR_RETURN(const Failure failure, first_failure(rendezvous, made.status()));
  if (!failure.happened) {
    device_ = std::move(made).value();
    return connect_copies(rendezvous);
  }
  // A GPU that refuses something is done without; who asks for more blocks than it has must know.
  if (config_.cuda_strict || failure.status.code() == Code::kUnsupported) return failure.status;
  TR_LOG_WARN(rank_, "GPU memory is not used between ranks: %s", failure.status.message().c_str());
  return {};
}

// All ranks have copies by copy engines or none.
Status Communicator::connect_copies(Rendezvous& rendezvous) {
  for (const bool all_have_started : {false, true}) {
    const Status mine = all_have_started ? device_->check_copies() : device_->start_copies();
    TR_ASSIGN_OR_RETURN(const Failure failure, first_failure(rendezvous, mine));
    if (!failure.happened) continue;
    why_no_copies_ = failure.status.message();
    TR_LOG_INFO(rank_, "no copies by copy engines: %s", why_no_copies_.c_str());
    return {};
  }
  device_->set_watch([this] { (void)watch(); });
  return {};
}

Result<bool> Communicator::is_on_device(const Request& r, const Stream* stream) const {
  const bool cuda_stream = stream != nullptr && stream->is_cuda();
  const bool looks = looks_at_pointers_ && r.call.collective != Collective::kBarrier;
  const bool in = looks && r.in_bytes > 0 && is_device_memory(r.call.in);
  const bool out = looks && r.out_bytes > 0 && is_device_memory(r.call.out);
  if (device_ == nullptr) {
    if (!cuda_stream && !in && !out) return false;
    return unsupported(std::string(cuda_stream ? "the call is on a CUDA stream"
                                   : in        ? "sendbuf is device memory"
                                               : "recvbuf is device memory") +
                       ", but this communicator has no GPU links; TR_LOG=info says why");
  }
  if (r.call.collective == Collective::kBarrier) return cuda_stream;
  const bool both = (in || r.in_bytes == 0) && (out || r.out_bytes == 0);
  if ((in || out) && !both) {
    return invalid_argument(std::string(in ? "sendbuf" : "recvbuf") +
                            " is device memory and the other buffer is not; both must be, or "
                            "neither");
  }
  if (in || out) {
    if (stream == nullptr || cuda_stream) return true;
    return invalid_argument(
        "the buffers are device memory and the stream is a host stream; use tr_stream_from_cuda");
  }
  if (!cuda_stream) return false;
  if (r.in_bytes == 0 && r.out_bytes == 0) return true;  // nothing to read or write here
  return invalid_argument("the buffers are host memory and the stream is a CUDA stream");
}

DeviceChoiceInput Communicator::device_choice_input(const ChoiceInput& call,
                                                    std::size_t elem_bytes) const {
  const DeviceLinkTable& table = device_->links().table();
  DeviceChoiceInput in;
  in.call = call;
  in.elem_bytes = elem_bytes;
  in.channels = table.channels;
  in.max_blocks = device_->max_blocks();
  std::copy_n(table.slot_bytes, kNumDeviceProtocols, in.slot_bytes);
  in.protocol = config_.protocol;
  in.why_no_ll128 = device_->links().why_no_ll128();
  in.copy_use = static_cast<CopyUse>(config_.copy_engine);
  in.why_no_copies = why_no_copies_;
  in.exists = device_has;
  return in;
}

DeviceChoiceInput Communicator::device_choice_input(const Request& r) const {
  return device_choice_input(choice_input(r), type_bytes(r.call.type));
}

Result<DevicePlan> Communicator::device_plan_for(const Request& r) const {
  if (r.call.op == RedOp::kUser) {
    return unsupported("a user-defined operator runs on host memory only");
  }
  TR_ASSIGN_OR_RETURN(const DeviceChoice choice, choose_on_device(device_choice_input(r)));
  DevicePlan plan;
  plan.algorithm = choice.algorithm->name;
  plan.by_copies = choice.by_copies;
  plan.protocol = choice.protocol;
  plan.lanes = choice.lanes;
  plan.channels = choice.channels;
  plan.chunks = choice.algorithm->chunks(size_);
  plan.slice_elems = choice.slice_elems;
  if (choice.algorithm->windows) plan.windows = &windows_;
  return plan;
}

Status Communicator::check_usable() {
  const Status status = async_error();
  return status.ok() ? status : fail_on_device(status);
}

Status Communicator::watch() {
  Status status = async_error();
  if (status.ok()) status = transport_->check_peers();
  // Copies wait for ever for a rank that called something else.
  if (status.ok() && has_copied_.load(std::memory_order_relaxed)) {
    status = check_same_call(operation_before(board_->issued.load(std::memory_order_relaxed)));
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

Status Communicator::enqueue_on_device(Request& r, Stream* stream, Range& range) {
  if (r.call.collective == Collective::kSendRecv) {
    const Message alone{&r, stream};
    return enqueue_messages({&alone, 1}, range);
  }
  TR_RETURN_IF_ERROR(check_usable());
  TR_ASSIGN_OR_RETURN(const DevicePlan plan, device_plan_for(r));
  range.begin(range_owner_,
              range_name(r, plan.algorithm,
                         plan.by_copies ? "copy engines" : device_protocol_name(plan.protocol)));
  if (plan.by_copies || plan.windows != nullptr) TR_RETURN_IF_ERROR(find_windows(r));
  if (r.cut) {
    constexpr std::uint64_t kCutBytes =
        kSlotAlign;  // as on the host: the same chunks, the same bits
    r.call.in_part = r.call.out_part =
        Partition::cut(r.call.count, plan.chunks, kCutBytes / type_bytes(r.call.type));
  }
  r.call.uneven = r.uneven;
  const Status status = start_on_device(r, plan, stream);
  return status.ok() ? status : fail_on_device(status);
}

Status Communicator::start_on_device(Request& r, const DevicePlan& plan, Stream* stream) {
  const algos::Algorithm& algorithm = *algos::find_algorithm(r.call.collective, plan.algorithm);
  CallKind call_kind = kind_of(r.call);
  call_kind.algorithm = number_of(algorithm);
  const std::uint64_t kind = pack(call_kind);
  const std::uint64_t signature = call_signature(kind, r.uneven ? 0 : r.call.count, sequence_);
  const auto post = [&](std::uint64_t place) {
    post_call(kind, r.call.count, place);
    if (stream == nullptr) waited_for_ = sequence_;
  };
  if (!plan.by_copies) {
    post(0);
    return device_->launch(r.call, plan, signature, use_stream(stream));
  }
  CopyCall copy{&algorithm, &r.call, &windows_};
  copy.in_place = r.in_place && r.call.collective == Collective::kAllGather;
  const std::uint64_t place = pack(reached_place(r, copy.in_place));
  copy.signature = call_signature(signature, place, 0);
  has_copied_.store(true, std::memory_order_relaxed);
  post(place);
  return device_->copy(copy, use_stream(stream));
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
  const Status calls = cause.code() == Code::kTimeout ? check_same_call(last) : Status{};
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
      if (a_board_differs()) status = check_same_call(operation_before(sequence_));
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
  TR_RETURN_IF_ERROR(enqueue_on_device(r, stream, range));
  return stream == nullptr ? wait_for_device() : Status{};
}

}  // namespace treering
