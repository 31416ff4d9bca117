// Gloo's own element functions for the types and operators that it has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gloo/algorithm.h>
#include <gloo/math.h>
#include <gloo/types.h>
#include <type_traits>

#include "perf/case.hpp"

namespace treering::perf {

// Calls fn(std::type_identity<T>{}) with Gloo's C++ type; false: Gloo has none (bfloat16, 8-bit
// floats). Signed integers are reduced as unsigned where the bits are the same, since they must
// wrap.
template <class Fn>
bool with_gloo_type(tr_type_t type, bool as_bits, const Fn& fn) {
  switch (type) {
    case TR_INT8:
      as_bits ? fn(std::type_identity<std::uint8_t>{}) : fn(std::type_identity<std::int8_t>{});
      return true;
    case TR_UINT8:
      fn(std::type_identity<std::uint8_t>{});
      return true;
    case TR_INT32:
      as_bits ? fn(std::type_identity<std::uint32_t>{}) : fn(std::type_identity<std::int32_t>{});
      return true;
    case TR_UINT32:
      fn(std::type_identity<std::uint32_t>{});
      return true;
    case TR_INT64:
      as_bits ? fn(std::type_identity<std::uint64_t>{}) : fn(std::type_identity<std::int64_t>{});
      return true;
    case TR_UINT64:
      fn(std::type_identity<std::uint64_t>{});
      return true;
    case TR_FLOAT16:
      fn(std::type_identity<gloo::float16>{});
      return true;
    case TR_FLOAT32:
      fn(std::type_identity<float>{});
      return true;
    case TR_FLOAT64:
      fn(std::type_identity<double>{});
      return true;
    default:
      return false;
  }
}

inline bool has_gloo_red_op(RedOp redop) { return redop <= RedOp::kMax; }
inline bool needs_sign(RedOp redop) { return redop == RedOp::kMin || redop == RedOp::kMax; }

using GlooFunction = void (*)(void*, const void*, const void*, std::size_t);
template <class T>
GlooFunction gloo_function(RedOp redop) {
  switch (redop) {
    case RedOp::kProd:
      return &gloo::product<T>;
    case RedOp::kMin:
      return &gloo::min<T>;
    case RedOp::kMax:
      return &gloo::max<T>;
    default:
      return &gloo::sum<T>;
  }
}

// The same for Gloo's older class templates.
template <class T>
const gloo::ReductionFunction<T>* gloo_reduction(RedOp redop) {
  switch (redop) {
    case RedOp::kProd:
      return gloo::ReductionFunction<T>::product;
    case RedOp::kMin:
      return gloo::ReductionFunction<T>::min;
    case RedOp::kMax:
      return gloo::ReductionFunction<T>::max;
    default:
      return gloo::ReductionFunction<T>::sum;
  }
}

}  // namespace treering::perf
