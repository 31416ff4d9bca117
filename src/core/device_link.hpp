// Links in device memory: what a kernel gets to see of a link between two GPUs' ranks.
//
// The FIFO of transports/fifo.hpp, laid out for GPUs: the slots lie in the reader's memory and the
// writer's kernel stores into them (over NVLink, PCIe or within one device). One block works on one
// link end at a time, so next is kept in shared memory while a kernel runs and written back when it
// ends. Invariants: LINKS.md, "Device links".
//
//   slot of message m: slots + m mod kDeviceSlots * slot_bytes
//   Simple  tail[m mod kDeviceSlots].number = m + 1 (release) once the slot is full
//   all     head = m + 1 (release) once the slot is read
//   LL      every 16-byte line of the slot carries its own flag, m + 1; no tail
//   LL128   every 128-byte line does, all 64 bits of m + 1; no tail
//
// Each protocol has slots of its own: data of one must never be taken for a flag of another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/macros.hpp"
#include "core/types.hpp"

namespace treering {

enum class DeviceProtocol : std::uint8_t { kSimple, kLL, kLL128 };
inline constexpr int kNumDeviceProtocols = 3;
const char* device_protocol_name(DeviceProtocol protocol);  // "Simple"

// What a warp moves at once under LL128: four lines.
inline constexpr std::uint32_t kLl128RowBytes = 512;
inline constexpr std::uint32_t kLl128RowData = 480;
// Data that a slot carries, beside its flags.
constexpr std::uint32_t slot_data_bytes(DeviceProtocol protocol, std::uint32_t slot_bytes) {
  switch (protocol) {
    case DeviceProtocol::kLL:
      return slot_bytes / 2;
    case DeviceProtocol::kLL128:
      return slot_bytes / kLl128RowBytes * kLl128RowData;
    default:
      return slot_bytes;
  }
}

// Links between the same two ranks that operations may use side by side: the two trees' (a cast is
// n-1 links of the second class: no algorithm uses both), and those of tr_send and tr_recv.
enum class DeviceLinkClass : std::uint8_t { kPair0, kPair1, kSendRecv };
inline constexpr int kNumDeviceLinkClasses = 3;
// The first so many of them exist. Sends and receives use Simple only: both ends must choose alike
// before they know of each other, and a message must show that they disagree on type or count. LL
// has no room for that, and no board lists sends as it lists collectives.
TR_HD constexpr int device_link_classes(DeviceProtocol protocol) {
  return protocol == DeviceProtocol::kSimple ? 3 : 2;
}

inline constexpr int kMaxDeviceRanks = 64;  // of a communicator
inline constexpr std::uint32_t kDeviceSlots = 4;

// One a slot, in the reader's memory. (A single tail would let the signature of message m be
// overwritten before m is read.)
struct alignas(16) DeviceTail {
  std::uint64_t signature;  // of the operation and the length: both ends must agree
  std::uint64_t number;
};

// Without constructors: copies of the ends lie in a block's shared memory.
struct DeviceTx {
  std::byte* slots;           // the peer's memory
  DeviceTail* tail;           // the peer's memory
  const std::uint64_t* head;  // own memory, written by the peer
  std::uint64_t next;         // number of the next message to post
  std::uint64_t released;     // the last head seen
};

struct DeviceRx {
  const std::byte* slots;  // own memory
  const DeviceTail* tail;  // own memory, written by the peer
  std::uint64_t* head;     // the peer's memory
  std::uint64_t next;      // number of the next message to receive
};

struct DeviceLinkEnds {
  DeviceTx tx;
  DeviceRx rx;
};

// Where blocks of one kernel meet, in the rank's own device memory (algos/cuda/junction.cuh).
struct alignas(128) DeviceJunction {
  std::uint32_t arrived;
  std::uint32_t turn;
};

// What one rank has in its own device memory: its ends, [protocol][channel][class][peer], and a
// junction a channel, and one for all of them.
struct DeviceLinkTable {
  DeviceLinkEnds* ends = nullptr;
  DeviceJunction* junctions = nullptr;
  std::int32_t channels = 0;
  std::int32_t size = 0;  // ranks
  std::uint32_t slot_bytes[kNumDeviceProtocols] = {};

  TR_HD constexpr std::size_t index(DeviceProtocol protocol, int channel, DeviceLinkClass cls,
                                    int peer) const {
    const auto p = static_cast<std::size_t>(protocol);
    return ((p * channels + channel) * kNumDeviceLinkClasses + static_cast<std::size_t>(cls)) *
               size +
           peer;
  }
};

// Words in a rank's device memory that streams of its peers write, without a kernel: so many for
// each peer (engine/cuda_copy_engine.hpp).
inline constexpr int kStreamStages = 6;

// Where a block of a kernel gave up, in host memory that the device can write. One per block.
struct DeviceReport {
  enum State : std::uint32_t { kFine, kTimeout, kAborted, kMismatch };
  std::uint32_t state = kFine;
  std::uint8_t verb = 0;        // algos::Verb
  std::uint8_t for_credit = 0;  // waited for room rather than for a message
  std::uint16_t channel = 0;
  std::int32_t peer = -1;
  std::int32_t chunk = 0;
  std::uint64_t number = 0;  // of the message
  std::uint64_t round = 0;
  std::uint64_t elems = 0;  // of the send or receive; 0: it was a collective
  Type type = Type::kUint8;
  Collective collective = Collective::kAllReduce;
  std::uint16_t call = 0;  // of several collectives in the kernel, from 1
};

}  // namespace treering
