// Element types, operators and collectives as the library's inside knows them.
// Plain enums and constexpr functions: algorithms and device code include this header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace treering {

// Values equal tr_type_t (asserted in src/api).
enum class Type : std::uint8_t {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kFloat8E4m3,
  kFloat8E5m2,
};
inline constexpr int kNumTypes = 12;

constexpr std::size_t type_bytes(Type type) {
  constexpr std::uint8_t kBytes[kNumTypes] = {1, 1, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1};
  return kBytes[static_cast<int>(type)];
}
constexpr bool is_float(Type type) { return type >= Type::kFloat16; }
const char* type_name(Type type);  // "float32"

// What the reduction kernels fold with. kNone: a move of bytes. kUser: a caller's function.
enum class RedOp : std::uint8_t { kSum, kProd, kMin, kMax, kUser, kNone };
const char* red_op_name(RedOp op);

// The operations of the API that the engine runs. The v-variants are the same collectives with a
// partition table (core/partition.hpp).
enum class Collective : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
  kScan,
  kExscan,
  kSendRecv,
};
inline constexpr int kNumCollectives = 12;
const char* collective_name(Collective collective);  // "all_reduce"

}  // namespace treering
