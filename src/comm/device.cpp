// Device memory: how a communicator gets its device engine, and what a call on it becomes.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/signature.hpp"
#include "core/log.hpp"
#include "engine/device_room.hpp"
#include "transports/exchange.hpp"
#include "transports/find_hosts.hpp"

namespace treering {
namespace {

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
  if (!is_one_host(transport_->host_of_rank())) {
    if (!config_.cuda_strict) return {};
    return unsupported("GPU memory is not used between hosts yet, and TR_CUDA_STRICT=1");
  }
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
      make_device_engine(std::move(links), device_timeout_ms(config_.timeout_ms));
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
  plan.chunks = algos::chunk_count(*choice.algorithm, size_, &*hosts_);
  plan.slice_elems = choice.slice_elems;
  if (choice.algorithm->windows) plan.windows = &windows_;
  return plan;
}

}  // namespace treering
