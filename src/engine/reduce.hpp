// The reduction kernel of the host engine: fold n inputs, store the result to m outputs.
//
//     out_1 = ... = out_m = ((s_1 * in_1) op (s_2 * in_2) op ... op (s_n * in_n)) / divisor
//
// folded left to right, element by element. 8- and 16-bit floats are widened to float32, folded
// there and rounded once at the end (core/numeric.hpp: nearest even; e4m3 overflows to NaN, e5m2
// and float16 to infinity). float32, float64 and integers fold in their own type, integers wrap.
// min/max: a NaN input wins; -0 < +0. Whatever the operator, a NaN result is the type's positive
// quiet NaN, because the sign and payload of a computed NaN differ between CPUs. The bits do not
// depend on CPU, alignment, length or on how a vector is cut (no fused multiply-add, no
// reassociation).
//
// kNone moves the one input's bits as they are. kUser calls the caller's operator, maybe several
// times, on blocks of the vector; neither is scaled or divided.
//
// Any alignment that is a multiple of the element size. An output may be the very same address as
// an input (in place); other overlap is not allowed. Thread-safe, allocates nothing, never fails.
//
// Dispatches at run time to the widest instruction set of the CPU (Google Highway).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.hpp"
#include "core/types.hpp"

namespace treering {

// A caller's operator (tr_op_create): acc[i] = acc[i] op in[i].
struct UserOp {
  void (*combine)(void* acc, const void* in, std::size_t count, int type, void* user) = nullptr;
  void* user = nullptr;
};

struct ReduceArgs {
  const void* const* inputs = nullptr;
  int num_inputs = 0;  // >= 1
  void* const* outputs = nullptr;
  int num_outputs = 0;  // >= 1
  std::size_t elems = 0;
  Type type = Type::kFloat32;
  RedOp op = RedOp::kSum;  // kNone: num_inputs == 1, bytes are moved (scales are ignored)
  // s_i = scale_in for the input of number scaled_input (pre-multiplied sum: a rank's own), else 1.
  // The product is formed in the fold's type (float32 for 8- and 16-bit floats) and then rounded to
  // the element type before it is folded: a scaled input has the same bits whether it is folded
  // here or sent to another rank first. Floating-point types only.
  int scaled_input = -1;  // none
  double scale_in = 1.0;
  // avg: divide the finished fold by this (floats: multiply by 1/divisor in the fold's type before
  // rounding; integers: truncate toward zero). 1 = nothing.
  std::uint32_t divisor = 1;
  // Bit i: output i is written with streaming (non-temporal) stores where its alignment and length
  // allow; reduce then ends in a store fence. Outputs beyond 63 are written with ordinary stores.
  std::uint64_t streaming_outputs = 0;
  const UserOp* user = nullptr;  // kUser
};

void reduce(const ReduceArgs& args);

// Is this thread inside a caller's operator?
bool in_user_operator();

// After reduce with kUser: did the operator throw an exception? The outputs are then undefined.
Status take_operator_failure();

// The instruction set in use, for logs and reports: "AVX2".
const char* reduce_target_name();

}  // namespace treering
