#include "perf/case.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "perf/failure.hpp"

namespace treering::perf {

std::string with_errno(std::string what, int errno_value) {
  return std::move(what) + ": " + std::strerror(errno_value);
}

namespace {

constexpr std::array<const char*, kNumOps> kOpNames = {
    "all_reduce", "reduce",     "broadcast", "all_gather", "reduce_scatter", "gather",
    "scatter",    "all_to_all", "barrier",   "scan",       "exscan",         "send_recv"};
constexpr std::array<const char*, TR_NUM_TYPES> kTypeNames = {
    "int8",    "uint8",    "int32",   "uint32",  "int64",       "uint64",
    "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2"};
constexpr std::array<const char*, TR_NUM_TYPES> kShortTypeNames = {
    "i8", "u8", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64", "e4m3", "e5m2"};
constexpr std::array<const char*, kNumRedOps> kRedOpNames = {"sum", "prod", "min",
                                                             "max", "avg",  "premul_sum"};
constexpr std::array<std::size_t, TR_NUM_TYPES> kTypeBytes = {1, 1, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1};

template <class T, std::size_t kSize>
std::optional<T> find_name(const std::array<const char*, kSize>& names, std::string_view name) {
  for (std::size_t i = 0; i < kSize; ++i) {
    if (name == names[i]) return static_cast<T>(i);
  }
  return std::nullopt;
}

// True where the whole vector consists of one part of `count` elements per rank.
bool has_part_per_rank(Op op) {
  return op == Op::kAllGather || op == Op::kReduceScatter || op == Op::kGather ||
         op == Op::kScatter || op == Op::kAllToAll;
}

std::byte* offset(void* base, const Case& what, int part) {
  return static_cast<std::byte*>(base) +
         static_cast<std::uint64_t>(part) * what.count * type_bytes(what.type);
}

}  // namespace

const char* op_name(Op op) { return kOpNames[static_cast<std::size_t>(op)]; }
const char* type_name(tr_type_t type) { return kTypeNames[static_cast<std::size_t>(type)]; }
const char* red_op_name(RedOp op) { return kRedOpNames[static_cast<std::size_t>(op)]; }

std::optional<Op> op_from_name(std::string_view name) { return find_name<Op>(kOpNames, name); }
std::optional<tr_type_t> type_from_name(std::string_view name) {
  const auto type = find_name<tr_type_t>(kTypeNames, name);
  return type ? type : find_name<tr_type_t>(kShortTypeNames, name);
}
std::optional<RedOp> red_op_from_name(std::string_view name) {
  return find_name<RedOp>(kRedOpNames, name);
}

std::size_t type_bytes(tr_type_t type) { return kTypeBytes[static_cast<std::size_t>(type)]; }
bool is_float(tr_type_t type) { return type >= TR_FLOAT16; }

bool reduces(Op op) {
  return op == Op::kAllReduce || op == Op::kReduce || op == Op::kReduceScatter || op == Op::kScan ||
         op == Op::kExscan;
}
bool is_rooted(Op op) {
  return op == Op::kReduce || op == Op::kBroadcast || op == Op::kGather || op == Op::kScatter;
}
bool has_in_place(Op op) { return op != Op::kBarrier && op != Op::kSendRecv; }

bool is_defined(Op op, RedOp redop, tr_type_t type) {
  if (!reduces(op)) return true;
  if (redop == RedOp::kAvg && (op == Op::kScan || op == Op::kExscan)) return false;
  return redop != RedOp::kPremulSum || is_float(type);
}

std::uint64_t send_elems(const Case& what, int ranks) {
  const auto n = static_cast<std::uint64_t>(ranks);
  switch (what.op) {
    case Op::kBarrier:
      return 0;
    case Op::kReduceScatter:
    case Op::kScatter:
    case Op::kAllToAll:
      return n * what.count;
    default:
      return what.count;
  }
}

std::uint64_t recv_elems(const Case& what, int ranks) {
  const auto n = static_cast<std::uint64_t>(ranks);
  switch (what.op) {
    case Op::kBarrier:
      return 0;
    case Op::kAllGather:
    case Op::kGather:
    case Op::kAllToAll:
      return n * what.count;
    default:
      return what.count;
  }
}

std::uint64_t total_bytes(const Case& what, int ranks) {
  return std::max(send_elems(what, ranks), recv_elems(what, ranks)) * type_bytes(what.type);
}

std::uint64_t count_for_bytes(Op op, tr_type_t type, int ranks, std::uint64_t bytes) {
  if (op == Op::kBarrier) return 0;
  const std::uint64_t parts = has_part_per_rank(op) ? static_cast<std::uint64_t>(ranks) : 1;
  return bytes / (parts * type_bytes(type));
}

double alg_bandwidth(const Case& what, int ranks, double time_us) {
  return static_cast<double>(total_bytes(what, ranks)) / (time_us * 1e3);
}

double bus_bandwidth(const Case& what, int ranks, double time_us) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  const double alg = alg_bandwidth(what, ranks, time_us);
  if (what.op == Op::kAllReduce) return alg * 2 * share;
  return has_part_per_rank(what.op) ? alg * share : alg;
}

Buffers place_buffers(const Case& what, int rank, void* a, void* b) {
  if (what.in_place == 0) return {a, b};
  switch (what.op) {
    case Op::kAllGather:
      return {offset(b, what, rank), b};
    case Op::kReduceScatter:
      return {b, offset(b, what, rank)};
    case Op::kGather:
      return rank == what.root ? Buffers{offset(b, what, rank), b} : Buffers{a, b};
    case Op::kScatter:
      return rank == what.root ? Buffers{b, offset(b, what, rank)} : Buffers{a, b};
    default:
      return {b, b};
  }
}

}  // namespace treering::perf
