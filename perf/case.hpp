// One thing to measure: an operation, its type, operator, root, count and whether it runs in place.
// What follows from it (how large the buffers are, what "size" and "bandwidth" mean) follows the
// conventions of nccl-tests, so that a reader can lay the two tables side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "treering/treering.h"

namespace treering::perf {

enum class Op : std::uint32_t {
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
  kSendRecv,  // a ring shift: to rank+1, from rank-1, both at once
};
inline constexpr int kNumOps = 12;

enum class RedOp : std::uint32_t { kSum, kProd, kMin, kMax, kAvg, kPremulSum };
inline constexpr int kNumRedOps = 6;

const char* op_name(Op op);             // "all_reduce", as in the API
const char* type_name(tr_type_t type);  // "float32"
const char* red_op_name(RedOp op);      // "sum"
std::optional<Op> op_from_name(std::string_view name);
std::optional<tr_type_t> type_from_name(std::string_view name);
std::optional<RedOp> red_op_from_name(std::string_view name);

std::size_t type_bytes(tr_type_t type);
bool is_float(tr_type_t type);
bool reduces(Op op);    // takes an operator
bool is_rooted(Op op);  // takes a root
// False where no buffer could be both: barrier has none, send_recv needs two.
bool has_in_place(Op op);
// Scans have no average (of how many ranks?), and a pre-multiplied sum needs a floating-point type.
bool is_defined(Op op, RedOp redop, tr_type_t type);

struct Case {
  Op op = Op::kAllReduce;
  tr_type_t type = TR_FLOAT32;
  RedOp redop = RedOp::kSum;
  std::int32_t root = 0;
  // As the API takes it: per rank for all_gather, reduce_scatter, gather, scatter and all_to_all.
  std::uint64_t count = 0;
  std::uint32_t in_place = 0;

  bool operator==(const Case&) const = default;
};

// Elements that a rank hands in and gets back: of the root for rooted operations, the largest of
// all ranks.
std::uint64_t send_elems(const Case& what, int ranks);
std::uint64_t recv_elems(const Case& what, int ranks);

// nccl-tests' "size": the bytes of the whole vector, so ranks * count for all_gather,
// reduce_scatter, gather, scatter and all_to_all. 0 for barrier.
std::uint64_t total_bytes(const Case& what, int ranks);
// The largest count whose total is no more than `bytes`; 0 where they have no room for an element.
std::uint64_t count_for_bytes(Op op, tr_type_t type, int ranks, std::uint64_t bytes);

// GB/s (10^9): the total over the time, and what each rank's link has to carry of it whatever the
// algorithm: 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter, gather, scatter and
// all_to_all, 1 for the others. 0 for barrier.
double alg_bandwidth(const Case& what, int ranks, double time_us);
double bus_bandwidth(const Case& what, int ranks, double time_us);

// Where the buffers of a rank lie. `a` and `b` each hold max(send_elems, recv_elems) elements.
struct Buffers {
  void* send = nullptr;
  void* recv = nullptr;
};
Buffers place_buffers(const Case& what, int rank, void* a, void* b);

}  // namespace treering::perf
