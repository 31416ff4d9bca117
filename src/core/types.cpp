#include "core/types.hpp"

namespace treering {

const char* type_name(Type type) {
  static constexpr const char* kNames[kNumTypes] = {
      "int8",    "uint8",    "int32",   "uint32",  "int64",       "uint64",
      "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2"};
  return kNames[static_cast<int>(type)];
}

const char* red_op_name(RedOp op) {
  static constexpr const char* kNames[] = {"sum", "prod", "min", "max", "user", "none"};
  return kNames[static_cast<int>(op)];
}

const char* collective_name(Collective collective) {
  static constexpr const char* kNames[kNumCollectives] = {
      "all_reduce", "reduce",     "broadcast", "all_gather", "reduce_scatter", "gather",
      "scatter",    "all_to_all", "barrier",   "scan",       "exscan",         "send_recv"};
  return kNames[static_cast<int>(collective)];
}

}  // namespace treering
