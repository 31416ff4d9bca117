// Calls on device memory: from a request to a kernel of the device engine.
#include <cstdlib>
#include <string>

#include "comm/communicator.hpp"
#include "comm/signature.hpp"
#include "core/log.hpp"
#include "tuner/device_choice.hpp"

namespace treering {

Status Communicator::connect_devices(Rendezvous& rendezvous) {
  if (!config_.cuda) return {};
  DeviceLinkOptions options;
  options.channels = static_cast<int>(config_.cuda_channels);
  if (config_.cuda_slot_bytes > 0) {
    options.slot_bytes[static_cast<int>(DeviceProtocol::kSimple)] =
        static_cast<std::uint32_t>(config_.cuda_slot_bytes);
  }
  options.host_id = config_.host_id;
  options.strict = config_.cuda_strict;
  TR_ASSIGN_OR_RETURN(std::unique_ptr<DeviceLinks> links, connect_device(rendezvous, options));
  if (links == nullptr) return {};
  TR_ASSIGN_OR_RETURN(device_, make_device_engine(std::move(links), config_.timeout_ms));
  return {};
}

Result<bool> Communicator::is_on_device(const Request& r, const Stream* stream) const {
  const bool cuda_stream = stream != nullptr && stream->is_cuda();
  if (device_ == nullptr) {
    if (!cuda_stream) return false;
    return unsupported(
        "the call is on a CUDA stream, but this communicator has no GPU links; TR_LOG=info says "
        "why");
  }
  if (r.call.collective == Collective::kBarrier) return cuda_stream;
  const bool in = r.in_bytes > 0 && is_device_memory(r.call.in);
  const bool out = r.out_bytes > 0 && is_device_memory(r.call.out);
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

Result<DevicePlan> Communicator::device_plan_for(const Request& r) const {
  if (r.call.collective == Collective::kSendRecv) {
    return unsupported("send and receive on device memory are not there yet");
  }
  if (r.call.op == RedOp::kUser) {
    return unsupported("a user-defined operator runs on host memory only");
  }
  const DeviceLinkTable& table = device_->links().table();
  DeviceChoiceInput in;
  in.call = choice_input(r);
  in.elem_bytes = type_bytes(r.call.type);
  in.channels = table.channels;
  in.max_blocks = device_->max_blocks();
  for (int p = 0; p < kNumDeviceProtocols; ++p) in.slot_bytes[p] = table.slot_bytes[p];
  in.protocol = config_.protocol;
  in.exists = device_has;
  TR_ASSIGN_OR_RETURN(const DeviceChoice choice, choose_on_device(in));
  DevicePlan plan;
  plan.algorithm = choice.algorithm->name;
  plan.protocol = choice.protocol;
  plan.lanes = choice.lanes;
  plan.channels = choice.channels;
  plan.chunks = choice.algorithm->chunks(size_);
  plan.slice_elems = choice.slice_elems;
  return plan;
}

Status Communicator::enqueue_on_device(Request& r, Stream* stream) {
  TR_RETURN_IF_ERROR(async_error());
  TR_ASSIGN_OR_RETURN(const DevicePlan plan, device_plan_for(r));
  if (r.cut) {
    constexpr std::uint64_t kCutBytes =
        kSlotAlign;  // as on the host: the same chunks, the same bits
    r.call.in_part = r.call.out_part =
        Partition::cut(r.call.count, plan.chunks, kCutBytes / type_bytes(r.call.type));
  }
  const std::uint64_t kind = pack(kind_of(r.call, r.uneven));
  const std::uint64_t signature = call_signature(kind, r.uneven ? 0 : r.call.count, sequence_);
  post_call(kind, r.call.count);
  if (stream != nullptr) stream->add(device_);
  const Status status =
      device_->launch(r.call, plan, signature, stream != nullptr ? stream->cuda_stream() : nullptr);
  return status.ok() ? status : fail_on_device(status);
}

// What a kernel reports fails the communicator, on every rank: the others read it on the board.
Status Communicator::fail_on_device(const Status& cause) {
  Operation none;
  none.call.collective = Collective::kSendRecv;
  device_->abort();
  return on_failure(none, cause);
}

Status Communicator::wait_for_device() {
  Spin spin(engine_->spin());
  Backoff backoff(spin);
  for (;;) {
    TR_ASSIGN_OR_RETURN(const bool done, device_->is_idle());
    if (const Status status = device_->check(); !status.ok()) return fail_on_device(status);
    if (done) break;
    if (!backoff.pause()) continue;
    Status status = aborted_.load(std::memory_order_acquire) ? async_error() : Status{};
    if (status.ok()) status = transport_->check_peers();
    if (!status.ok()) return fail_on_device(status);
  }
  board_->completed.store(sequence_, std::memory_order_relaxed);
  return {};
}

Status Communicator::launch_on_device(Request& r, Stream* stream) {
  TR_RETURN_IF_ERROR(enqueue_on_device(r, stream));
  return stream == nullptr ? wait_for_device() : Status{};
}

}  // namespace treering
