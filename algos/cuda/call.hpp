// DeviceCall: everything that a collective's kernel is told, by value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device_link.hpp"
#include "core/partition.hpp"
#include "core/types.hpp"

namespace treering::cuda {

struct DeviceCall {
  Collective collective = Collective::kAllReduce;
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::int32_t root = 0;  // of sends and receives: the peer
  Type type = Type::kFloat32;
  RedOp op = RedOp::kNone;
  bool wire_is_in = false;  // relays without a local operand take their length from in_part
  bool scaled = false;      // pre-multiplied sum
  double factor = 1.0;
  std::uint32_t divisor = 1;

  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  Partition in_part;
  Partition out_part;

  // How the vector is cut: in round b a chunk's slices b*k .. b*k+k-1 are handled; channel c of C
  // takes rounds c, c+C, ...
  std::uint64_t slice_elems = 1;
  std::uint32_t slices_per_round = 1;
  std::uint32_t channels = 1;
  std::uint64_t rounds = 0;
  std::uint64_t signature = 0;

  DeviceLinkTable links;
  DeviceReport* reports = nullptr;       // one per block, host memory
  const std::uint32_t* abort = nullptr;  // host memory: not 0 = give up
  std::uint64_t timeout_ns = 0;          // of every wait

  // The v-variants' counts and displacements, copied from host memory at tables_from, where the
  // partitions still point.
  const std::uint64_t* tables_from = nullptr;
  std::uint64_t tables[4 * kMaxDeviceRanks];
};
// Kernel parameters hold 4 KiB on every architecture.
static_assert(sizeof(DeviceCall) <= 4096);

}  // namespace treering::cuda
