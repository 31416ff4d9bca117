#include "tuner/device_choice.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace treering {

namespace {

// Not yet measured on a GPU: one step of latency while the vector is short, then every rank folds
// its part from all others' at once, rings where there are too many ranks for that.
struct DeviceRule {
  Collective collective;
  std::uint64_t max_bytes;
  int max_size;
  const char* name;
  const char* why;
};
constexpr std::uint64_t kAnyBytes = ~0ull;
constexpr int kAnyRanks = 1 << 30;
using C = Collective;
constexpr DeviceRule kRules[] = {
    {C::kAllReduce, 16 << 10, 8, "one_shot", "small: one step of latency"},
    {C::kAllReduce, kAnyBytes, 16, "two_shot", "each rank folds its part once and shows it to all"},
    {C::kAllReduce, 256 << 10, kAnyRanks, "tree", "small, many ranks: log2 n steps"},
    {C::kAllReduce, kAnyBytes, kAnyRanks, "ring", "large, many ranks: two neighbours each"},
    {C::kReduce, kAnyBytes, 16, "direct", "one step: the root folds all inputs"},
    {C::kReduce, kAnyBytes, kAnyRanks, "tree", "many ranks: the root would be a bottleneck"},
    {C::kBroadcast, kAnyBytes, 8, "direct", "one step"},
    {C::kBroadcast, kAnyBytes, kAnyRanks, "tree", "many ranks: the root would be a bottleneck"},
    {C::kAllGather, kAnyBytes, 16, "direct", "one step"},
    {C::kAllGather, kAnyBytes, kAnyRanks, "ring", "many ranks: two neighbours each"},
    {C::kReduceScatter, kAnyBytes, 16, "direct",
     "each rank folds its part from all inputs at once"},
    {C::kReduceScatter, kAnyBytes, kAnyRanks, "ring", "many ranks: two neighbours each"},
    {C::kGather, kAnyBytes, kAnyRanks, "direct", "one step"},
    {C::kScatter, kAnyBytes, kAnyRanks, "direct", "one step"},
    {C::kAllToAll, kAnyBytes, kAnyRanks, "pairwise", "every pair exchanges directly, all at once"},
    {C::kBarrier, kAnyBytes, kAnyRanks, "direct", "one step"},
    {C::kScan, kAnyBytes, kAnyRanks, "direct", "one step"},
    {C::kExscan, kAnyBytes, kAnyRanks, "direct", "one step"},
};

// What keeps an algorithm of the device from serving the call; nullptr: nothing.
const char* device_objection(const algos::Algorithm& a, const ChoiceInput& in) {
  if (!a.supports(in.size)) return "it does not support this number of ranks";
  if (in.ordered && !a.order_is_fixed) return "TR_OPT_ORDERED asks for a fold in rank order";
  if (in.in_place && !a.in_place) return "it does not work in place";
  if (in.uneven && !a.uneven) return "it needs the same count on all ranks";
  return nullptr;
}

std::uint64_t most_slice_bytes(const DeviceChoiceInput& in, DeviceProtocol protocol) {
  const std::uint64_t data_bytes =
      slot_data_bytes(protocol, in.slot_bytes[static_cast<int>(protocol)]);
  const std::uint64_t forced = in.call.forced_slice_bytes;
  return forced != 0 ? std::min(data_bytes, forced) : data_bytes;
}

// Short vectors are dealt out to all channels, in slices of at least four units.
std::uint64_t share_of_a_channel(std::uint64_t bytes, std::uint64_t channels,
                                 DeviceProtocol protocol) {
  const std::uint64_t unit = protocol == DeviceProtocol::kLL128 ? kLl128RowData : 256;
  const std::uint64_t share = (bytes + channels - 1) / channels;
  return (std::max(share, 4 * unit) + unit - 1) / unit * unit;
}

std::string names_on_device(const DeviceChoiceInput& in) {
  std::string names;
  for (const algos::Algorithm& a : algos::all_algorithms()) {
    if (a.collective != in.call.collective || !a.supports(in.call.size) ||
        !in.exists(a.collective, a.name, DeviceProtocol::kSimple)) {
      continue;
    }
    names += (names.empty() ? "" : ", ") + std::string(a.name);
  }
  return names;
}

// As a preference of an algorithm: for chunks of up to max_bytes. Not yet measured on a GPU. A hop
// of Simple costs a few microseconds more than one of LL128, and that one more than one of LL:
// what the flags take from the bandwidth pays as long as a chunk is short against that.
struct ProtocolRule {
  std::uint64_t max_bytes;
  DeviceProtocol protocol;
  const char* why;
};
constexpr ProtocolRule kProtocolRules[] = {
    {8 << 10, DeviceProtocol::kLL, "short chunks: the quickest hop"},
    {256 << 10, DeviceProtocol::kLL128,
     "chunks of medium length: a quick hop, 15/16 of the bandwidth"},
    {kAnyBytes, DeviceProtocol::kSimple, "long chunks: all of the bandwidth"},
};

// Why `protocol` may not serve this call; empty if it may.
std::string_view protocol_objection(DeviceProtocol protocol, const algos::Algorithm& a,
                                    const DeviceChoiceInput& in) {
  if (in.slot_bytes[static_cast<int>(protocol)] == 0 ||
      !in.exists(in.call.collective, a.name, protocol)) {
    return "this build has none";
  }
  return protocol == DeviceProtocol::kLL128 ? in.why_no_ll128 : std::string_view();
}

Result<ProtocolRule> protocol_for(std::uint64_t chunk_bytes, const algos::Algorithm& a,
                                  const DeviceChoiceInput& in) {
  if (!in.protocol.empty()) {
    std::string names;
    for (int p = 0; p < kNumDeviceProtocols; ++p) {
      const auto protocol = static_cast<DeviceProtocol>(p);
      const std::string name = device_protocol_name(protocol);
      names += (names.empty() ? "" : ", ") + name;
      if (in.protocol != name) continue;
      const std::string_view why = protocol_objection(protocol, a, in);
      if (why.empty()) return ProtocolRule{kAnyBytes, protocol, "forced by the caller"};
      return invalid_argument("protocol " + name + " was forced, but " + std::string(why));
    }
    return invalid_argument("there is no protocol \"" + std::string(in.protocol) +
                            "\"; there are: " + names);
  }
  // A v-variant's rank does not know the others' lengths.
  if (in.call.uneven) {
    return ProtocolRule{kAnyBytes, DeviceProtocol::kSimple, "any length will do"};
  }
  for (const ProtocolRule& rule : kProtocolRules) {
    if (chunk_bytes <= rule.max_bytes && protocol_objection(rule.protocol, a, in).empty()) {
      return rule;
    }
  }
  return internal_error("no protocol on the device");
}

// The most lanes that any rank has. Recorded once: a call must not record every rank's schedule.
int lanes_of(const algos::Algorithm& a, int size) {
  thread_local std::map<std::pair<const algos::Algorithm*, int>, int> known;
  int& lanes = known[{&a, size}];
  if (lanes > 0) return lanes;
  lanes = 1;
  for (int rank = 0; rank < size; ++rank) {
    lanes = std::max(lanes, algos::record(a, rank, size).lanes);
  }
  return lanes;
}

Result<DeviceChoice> finish(const algos::Algorithm& a, const char* why,
                            const DeviceChoiceInput& in) {
  const ChoiceInput& call = in.call;
  const bool cut_here = call.collective == C::kAllReduce || call.collective == C::kReduce ||
                        call.collective == C::kBroadcast || call.collective == C::kScan ||
                        call.collective == C::kExscan;
  const auto chunks = static_cast<std::uint64_t>(cut_here ? a.chunks(call.size) : 1);
  const std::uint64_t chunk_bytes = (call.bytes + chunks - 1) / chunks;
  DeviceChoice c;
  c.algorithm = &a;
  c.why = why;
  TR_ASSIGN_OR_RETURN(const ProtocolRule rule, protocol_for(chunk_bytes, a, in));
  c.protocol = rule.protocol;
  c.why_protocol = rule.why;
  c.lanes = lanes_of(a, call.size);
  const int most_channels = std::clamp(in.max_blocks / c.lanes, 1, in.channels);
  std::uint64_t slice_bytes = most_slice_bytes(in, c.protocol);
  c.channels = most_channels;
  if (!call.uneven) {
    const auto channels = static_cast<std::uint64_t>(most_channels);
    slice_bytes = std::min(slice_bytes, share_of_a_channel(chunk_bytes, channels, c.protocol));
    const std::uint64_t slices =
        std::max<std::uint64_t>(1, (chunk_bytes + slice_bytes - 1) / slice_bytes);
    c.channels = static_cast<int>(std::min(channels, slices));
  }
  c.slice_elems = slice_bytes / in.elem_bytes;
  return c;
}

}  // namespace

std::uint64_t message_slice_elems(const DeviceChoiceInput& in) {
  const std::uint64_t slice_bytes = most_slice_bytes(in, DeviceProtocol::kSimple);
  const auto channels = static_cast<std::uint64_t>(in.channels);
  return std::min(slice_bytes,
                  share_of_a_channel(in.call.bytes, channels, DeviceProtocol::kSimple)) /
         in.elem_bytes;
}

std::string explain_device_choices(DeviceChoiceInput in) {
  std::string text;
  std::string shown;
  for (std::uint64_t bytes = 8; bytes <= std::uint64_t{1} << 30; bytes *= 2) {
    in.call.bytes = bytes;
    const Result<DeviceChoice> made = choose_on_device(in);
    if (!made.ok()) return "  " + made.status().message() + "\n";
    const DeviceChoice& c = made.value();
    const std::string name =
        std::string(c.algorithm->name) + ", " + device_protocol_name(c.protocol);
    if (name == shown) continue;
    shown = name;
    text += "  from " + std::to_string(bytes) + " bytes: " + name + " (" + c.why + "; " +
            c.why_protocol + ")\n";
  }
  return text;
}

Result<DeviceChoice> choose_on_device(const DeviceChoiceInput& in) {
  const ChoiceInput& call = in.call;
  const auto find = [&](const char* name) {
    const algos::Algorithm* a = algos::find_algorithm(call.collective, name);
    const bool there = a != nullptr && in.exists(call.collective, name, DeviceProtocol::kSimple);
    return there ? a : nullptr;
  };
  if (call.size == 1) {
    const algos::Algorithm* local = find("local");
    if (local == nullptr) return internal_error("no local algorithm on the device");
    return finish(*local, "one rank: a copy", in);
  }
  if (call.forced != nullptr) {
    const algos::Algorithm* a = find(call.forced);
    if (a == nullptr) {
      return invalid_argument(
          std::string(collective_name(call.collective)) + " algorithm \"" + call.forced +
          "\" was forced, but there is no kernel for it; there are: " + names_on_device(in));
    }
    if (const char* why = device_objection(*a, call)) {
      return invalid_argument(std::string(collective_name(call.collective)) + " algorithm \"" +
                              call.forced + "\" was forced but cannot serve this call: " + why);
    }
    return finish(*a, "forced by the caller", in);
  }
  for (const DeviceRule& rule : kRules) {
    if (rule.collective != call.collective || call.bytes > rule.max_bytes ||
        call.size > rule.max_size) {
      continue;
    }
    const algos::Algorithm* a = find(rule.name);
    if (a != nullptr && device_objection(*a, call) == nullptr) return finish(*a, rule.why, in);
  }
  for (const algos::Algorithm& a : algos::all_algorithms()) {
    if (a.collective != call.collective || find(a.name) == nullptr ||
        device_objection(a, call) != nullptr)
      continue;
    return finish(a, "the only one that can serve this call", in);
  }
  return unsupported(std::string("no kernel for ") + collective_name(call.collective) +
                     " fits this call");
}

}  // namespace treering
