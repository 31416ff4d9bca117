#include "tuner/device_choice.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "tuner/rules.hpp"

namespace treering {

namespace {

constexpr std::uint64_t kAnyBytes = ~0ull;

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
  if (a.windows && protocol != DeviceProtocol::kSimple)
    return "algorithms on windows signal over Simple";
  if (in.slot_bytes[static_cast<int>(protocol)] == 0 ||
      !in.exists(in.call.collective, a.name, protocol)) {
    return "this build has none";
  }
  return protocol == DeviceProtocol::kLL128 ? in.why_no_ll128 : std::string_view();
}

Result<ProtocolRule> protocol_for(std::uint64_t longest_chunk, const algos::Algorithm& a,
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
  if (a.windows) return ProtocolRule{kAnyBytes, DeviceProtocol::kSimple, "for signals only"};
  // A v-variant's rank does not know the others' lengths.
  if (in.call.uneven) {
    return ProtocolRule{kAnyBytes, DeviceProtocol::kSimple, "any length will do"};
  }
  for (const ProtocolRule& rule : kProtocolRules) {
    if (longest_chunk <= rule.max_bytes && protocol_objection(rule.protocol, a, in).empty()) {
      return rule;
    }
  }
  return internal_error("no protocol on the device");
}

// Not yet measured on a GPU. Two or three signals and a copy for each peer cost some tens of
// microseconds, against which a part must be long.
constexpr std::uint64_t kMinCopyBytes = 1 << 20;

// Does the algorithm on windows move data, and write to this rank's memory only?
bool only_reads_peers(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kAllGather ||
         collective == Collective::kGather || collective == Collective::kAllToAll;
}

// Why copy engines serve this call; nullptr if a kernel does. (What they can do and why:
// engine/cuda_copy_engine.hpp.)
const char* why_copies(const DeviceChoiceInput& in) {
  const ChoiceInput& call = in.call;
  const algos::Algorithm* a = algos::find_algorithm(call.collective, "window");
  if (in.copy_use == CopyUse::kNone || !in.why_no_copies.empty() || a == nullptr || call.size < 2) {
    return nullptr;
  }
  // A v-variant's ranks cannot compare their counts.
  if (!only_reads_peers(call.collective) || !call.windows || call.uneven ||
      (call.in_place && !a->in_place)) {
    return nullptr;
  }
  const bool is_forced = call.forced != nullptr && std::string_view(call.forced) == a->name;
  if (call.forced != nullptr && !is_forced) return nullptr;
  if (in.copy_use == CopyUse::kAll) return "TR_OPT_COPY_ENGINE is 2";
  if (!in.protocol.empty()) return nullptr;  // a kernel's
  if (is_forced && !in.exists(call.collective, a->name, DeviceProtocol::kSimple)) {
    return "forced by the caller, and no kernel has it";
  }
  // Only the root knows whether a gather is in place, and then its buffer lies elsewhere.
  if (call.collective == Collective::kGather || call.bytes < kMinCopyBytes) return nullptr;
  return "registered, and long: all multiprocessors stay free";
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

}  // namespace

Result<DeviceChoice> choose_on_device(const DeviceChoiceInput& in) {
  if (const char* why = why_copies(in)) {
    DeviceChoice c;
    c.algorithm = algos::find_algorithm(in.call.collective, "window");
    c.by_copies = true;
    c.why = why;
    return c;
  }
  ChoiceInput call = in.call;
  // Who forces another protocol wants algorithms that have it.
  call.windows = call.windows && (call.forced != nullptr || in.protocol.empty() ||
                                  in.protocol == device_protocol_name(DeviceProtocol::kSimple));
  TR_ASSIGN_OR_RETURN(const Pick pick, pick_algorithm(call, Place::kDevice, [&](const char* name) {
                        return in.exists(call.collective, name, DeviceProtocol::kSimple);
                      }));
  const algos::Algorithm& a = *pick.algorithm;
  const std::uint64_t longest = chunk_bytes(a, call);
  DeviceChoice c;
  c.algorithm = &a;
  c.why = pick.why;
  TR_ASSIGN_OR_RETURN(const ProtocolRule rule, protocol_for(longest, a, in));
  c.protocol = rule.protocol;
  c.why_protocol = rule.why;
  c.lanes = lanes_of(a, call.size);
  const int most_channels = std::clamp(in.max_blocks / c.lanes, 1, in.channels);
  std::uint64_t slice_bytes = a.windows ? kAnyBytes : most_slice_bytes(in, c.protocol);
  c.channels = most_channels;
  if (!call.uneven) {
    const auto channels = static_cast<std::uint64_t>(most_channels);
    slice_bytes = std::min(slice_bytes, share_of_a_channel(longest, channels, c.protocol));
    const std::uint64_t slices =
        std::max<std::uint64_t>(1, (longest + slice_bytes - 1) / slice_bytes);
    c.channels = static_cast<int>(std::min(channels, slices));
  }
  c.slice_elems = slice_bytes / in.elem_bytes;
  return c;
}

std::uint64_t message_slice_elems(const DeviceChoiceInput& in) {
  const std::uint64_t slice_bytes = most_slice_bytes(in, DeviceProtocol::kSimple);
  const auto channels = static_cast<std::uint64_t>(in.channels);
  return std::min(slice_bytes,
                  share_of_a_channel(in.call.bytes, channels, DeviceProtocol::kSimple)) /
         in.elem_bytes;
}

std::string explain_device_choices(DeviceChoiceInput in) {
  return explain_sizes([&](std::uint64_t bytes) -> Result<Description> {
    in.call.bytes = bytes;
    TR_ASSIGN_OR_RETURN(const DeviceChoice c, choose_on_device(in));
    if (c.by_copies) return Description{std::string(c.algorithm->name) + ", copy engines", c.why};
    return Description{std::string(c.algorithm->name) + ", " + device_protocol_name(c.protocol),
                       std::string(c.why) + "; " + c.why_protocol};
  });
}

}  // namespace treering
