#include "engine/cuda_batch.hpp"

#include <algorithm>

namespace treering {
namespace {

using cuda::DeviceCall;

// In whole lines, so that vectors of 16 bytes stay aligned where the buffers are.
std::uint64_t share_of_a_channel(std::uint64_t elems, int channels, std::size_t elem_bytes) {
  const std::uint64_t line = 128 / elem_bytes, n = static_cast<std::uint64_t>(channels);
  return ((elems + n - 1) / n + line - 1) / line * line;
}

// All but where its words are.
DeviceCall device_call(const Call& call, const DevicePlan& plan, std::uint64_t longest_chunk) {
  DeviceCall c;
  c.collective = call.collective;
  c.type = call.type;
  c.op = call.op;
  c.wire_is_in = call.wire_is_in;
  c.scaled = call.scaled;
  c.lanes = static_cast<std::uint16_t>(plan.lanes);
  c.channels = static_cast<std::uint16_t>(plan.channels);
  c.root = call.root;
  c.divisor = call.divisor;
  c.factor = call.factor;
  c.in = call.in;
  c.out = call.out;
  c.in_part = call.in_part;
  c.out_part = call.out_part;
  c.slice_elems = plan.windows == nullptr
                      ? plan.slice_elems
                      : share_of_a_channel(longest_chunk, plan.channels, type_bytes(call.type));
  c.slices_per_round = plan.slices_per_round;
  const std::uint64_t slices = (longest_chunk + c.slice_elems - 1) / c.slice_elems;
  c.rounds = (slices + plan.slices_per_round - 1) / plan.slices_per_round;
  return c;
}

// Where the peers see this rank's buffers: what its kernel publishes.
void tell_where(const WindowToken& t, const std::vector<WindowMap>& windows, int size,
                std::vector<std::uint64_t>* words) {
  const auto tell = [&](std::byte* at) { words->push_back(reinterpret_cast<std::uint64_t>(at)); };
  for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r) {
    tell(windows[t.in_window].seen_at[r] + t.in_offset_bytes);
    tell(windows[t.out_window].seen_at[r] + t.out_offset_bytes);
  }
}

}  // namespace

bool CallBatch::has_room(const DeviceCall& call, std::size_t words) const {
  return cuda::ManyDeviceCalls::holds(calls_.size() + 1, words_.size() + words) &&
         std::max<int>(lanes_, call.lanes) * std::max<int>(channels_, call.channels) <= max_blocks_;
}

Result<bool> CallBatch::add(const CollectiveCall& collective) {
  const Call& call = *collective.call;
  const DevicePlan& plan = collective.plan;
  const int algorithm = cuda::find_algorithm(call.collective, plan.algorithm, plan.protocol);
  if (algorithm < 0) return internal_error("no kernel for a plan of the device");
  std::uint64_t longest_chunk = 0;
  for (int i = 0; i < plan.chunks; ++i) {
    longest_chunk = std::max({longest_chunk, call.in_part.elems(i), call.out_part.elems(i)});
  }
  DeviceCall c = device_call(call, plan, longest_chunk);
  if (c.rounds == 0) return true;

  const int size = links_.table().size;
  std::vector<std::uint64_t> words = call.tables;
  const auto seen_at = words.size();
  if (plan.windows != nullptr) tell_where(call.token, *plan.windows, size, &words);
  if (!empty() && (plan.protocol != protocol_ || !has_room(c, words.size()))) return false;

  c.number = static_cast<std::uint16_t>(calls_.size() + 1);
  c.algorithm = static_cast<std::uint16_t>(algorithm);
  c.signature = collective.signature;
  c.shares_bytes = collective.shares_bytes;
  c.words_from = call.tables.data();
  c.words_at = static_cast<std::uint32_t>(words_.size());
  c.seen_at = static_cast<std::uint32_t>(words_.size() + seen_at);
  words_.insert(words_.end(), words.begin(), words.end());
  protocol_ = plan.protocol;
  lanes_ = std::max<int>(lanes_, c.lanes);
  channels_ = std::max<int>(channels_, c.channels);
  longest_slice_bytes_ = std::max(longest_slice_bytes_,
                                  std::min(longest_chunk, c.slice_elems) * type_bytes(call.type));
  calls_.push_back(c);
  return true;
}

void CallBatch::clear() {
  calls_.clear();
  words_.clear();
  lanes_ = channels_ = 1;
  longest_slice_bytes_ = 0;
}

}  // namespace treering
