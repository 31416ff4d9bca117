// What a kernel is told, by value: DeviceCalls, the collectives of a launch, or DeviceMessages, its
// sends and receives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device_link.hpp"
#include "core/partition.hpp"
#include "core/types.hpp"

namespace treering::cuda {

// What is the same for all calls of a launch.
struct DeviceContext {
  std::int32_t rank = 0;
  std::int32_t size = 1;
  DeviceLinkTable links;
  DeviceReport* reports = nullptr;       // one per block, host memory
  const std::uint32_t* abort = nullptr;  // host memory: not 0 = give up
  std::uint64_t timeout_ns = 0;          // of every wait
};

struct DeviceCall {
  Collective collective = Collective::kAllReduce;
  Type type = Type::kFloat32;
  RedOp op = RedOp::kNone;
  bool wire_is_in = false;      // relays without a local operand take their length from in_part
  bool scaled = false;          // pre-multiplied sum
  bool shares_bytes = false;    // with a call before it in the launch; one of the two writes them
  std::uint16_t number = 0;     // of several in a launch, from 1
  std::uint16_t algorithm = 0;  // find_algorithm (algos/cuda/kernels.hpp)
  std::uint16_t lanes = 1;
  std::uint16_t channels = 1;
  std::int32_t root = 0;  // of sends and receives: the peer
  std::uint32_t divisor = 1;
  double factor = 1.0;

  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  Partition in_part;
  Partition out_part;

  // How the vector is cut: in round b a chunk's slices b*k .. b*k+k-1 are handled; channel c of C
  // takes rounds c, c+C, ...
  std::uint64_t slice_elems = 1;
  std::uint64_t rounds = 0;
  std::uint64_t signature = 0;
  std::uint32_t slices_per_round = 1;

  // Where its part of the launch's table is: the v-variants' counts and displacements, copied from
  // host memory at words_from, where the partitions still point.
  std::uint32_t words_at = 0;
  const std::uint64_t* words_from = nullptr;
  // For algorithms on windows, in the same table: where rank r sees this rank's in and out, at
  // seen_at + 2 r and the next.
  std::uint32_t seen_at = 0;
};
// So many words are enough for any one call.
inline constexpr int kMostCallWords = 4 * kMaxDeviceRanks;

// Collectives that run one after another, in one kernel (algos/cuda/calls.cuh).
template <int kMost, int kWords>
struct DeviceCalls {
  static constexpr bool holds(std::size_t calls, std::size_t words) {
    return calls <= kMost && words <= kWords;
  }
  DeviceContext context;
  std::int32_t num_calls;
  std::int32_t lanes;  // of the launch: at least as many as any call has
  DeviceCall calls[kMost];
  std::uint64_t words[kWords];  // of all of them
};
using FewDeviceCalls = DeviceCalls<8, 288>;
using ManyDeviceCalls = DeviceCalls<128, 1200>;

// A send or receive. What both ends must agree on follows from type and count, but for `data`.
struct DeviceMessage {
  std::byte* data;          // only read of a send
  std::uint64_t elems;      // at least 1
  std::uint64_t signature;  // of type and count
  std::uint32_t slice_elems;
  std::int16_t peer;
  Type type;
  bool is_send;
};

// Up to kMost of them, lane by lane: what goes to a peer is a lane, and what comes from it another;
// in a lane, in issue order. Lane i has the messages begin[i] .. begin[i + 1] - 1. Slice s of a
// message goes over channel s mod call.channels.
template <int kMost>
struct DeviceMessages {
  DeviceContext context;
  DeviceCall call;  // a send or receive; of the rest only channels
  std::int32_t lanes;
  std::uint16_t begin[2 * kMaxDeviceRanks + 1];
  DeviceMessage messages[kMost];
};
inline constexpr int kFewMessages = 32;
inline constexpr int kMostMessages = 768;

// Kernel parameters hold 4 KiB on every architecture and with every driver, and 32,764 bytes with
// drivers of CUDA 12.1 and later, which CUDA 13 needs anyway.
static_assert(sizeof(FewDeviceCalls) <= 4096 && sizeof(ManyDeviceCalls) <= 32764 &&
              sizeof(DeviceMessages<kFewMessages>) <= 4096 &&
              sizeof(DeviceMessages<kMostMessages>) <= 32764);

}  // namespace treering::cuda
