// Elements: how one element of each type is loaded, combined and stored. The rules of a reduction
// as plainly as C++ can say them; the same lines run on the host and inside CUDA kernels, and the
// host's vector kernels must equal them bit for bit.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/macros.hpp"
#include "core/numeric.hpp"
#include "core/types.hpp"

namespace treering {

TR_HD constexpr bool is_nan(float x) {
  return (std::bit_cast<std::uint32_t>(x) & 0x7fffffffu) > kFloat32Infinity;
}
TR_HD constexpr bool is_nan(double x) {
  return (std::bit_cast<std::uint64_t>(x) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
}
TR_HD constexpr bool is_negative(float x) { return (std::bit_cast<std::uint32_t>(x) >> 31) != 0; }
TR_HD constexpr bool is_negative(double x) { return (std::bit_cast<std::uint64_t>(x) >> 63) != 0; }

// Stored: the type in memory. Folded: the type in which inputs are combined.
template <class T>
struct SameElement {
  using Stored = T;
  using Folded = T;
  TR_HD static constexpr T load(T value) { return value; }
  // The sign and payload of a computed NaN differ between processors; what is stored does not.
  TR_HD static constexpr T store(T value) {
    if constexpr (std::is_same_v<T, float>) {
      if (is_nan(value)) return std::bit_cast<float>(kFloat32QuietNan);
    } else if constexpr (std::is_same_v<T, double>) {
      if (is_nan(value)) return std::bit_cast<double>(0x7ff8000000000000ull);
    }
    return value;
  }
};

template <class T, float (*kWiden)(T), T (*kNarrow)(float)>
struct NarrowElement {
  using Stored = T;
  using Folded = float;
  TR_HD static constexpr float load(T value) { return kWiden(value); }
  TR_HD static constexpr T store(float value) { return kNarrow(value); }
};

template <RedOp op, class T>
TR_HD constexpr T combine(T a, T b) {
  if constexpr (op == RedOp::kMin || op == RedOp::kMax) {
    if constexpr (std::is_floating_point_v<T>) {
      if (is_nan(a)) return a;
      if (is_nan(b)) return b;
      if (a == b) return is_negative(a) == (op == RedOp::kMin) ? a : b;  // zeros differ in sign
    }
    return (op == RedOp::kMin) == (a < b) ? a : b;
  } else if constexpr (std::is_floating_point_v<T>) {
    return op == RedOp::kSum ? a + b : a * b;
  } else {
    using Wrapping = std::make_unsigned_t<T>;
    const auto x = static_cast<Wrapping>(a);
    const auto y = static_cast<Wrapping>(b);
    return static_cast<T>(op == RedOp::kSum ? x + y : x * y);
  }
}

// Calls f(Element{}) with the element of a type, and returns what it returns.
template <class F>
TR_HD constexpr auto with_element(Type type, F&& f) {
  switch (type) {
    case Type::kInt8:
      return f(SameElement<std::int8_t>{});
    case Type::kUint8:
      return f(SameElement<std::uint8_t>{});
    case Type::kInt32:
      return f(SameElement<std::int32_t>{});
    case Type::kUint32:
      return f(SameElement<std::uint32_t>{});
    case Type::kInt64:
      return f(SameElement<std::int64_t>{});
    case Type::kUint64:
      return f(SameElement<std::uint64_t>{});
    case Type::kFloat16:
      return f(NarrowElement<std::uint16_t, float32_from_float16, float16_from_float32>{});
    case Type::kBfloat16:
      return f(NarrowElement<std::uint16_t, float32_from_bfloat16, bfloat16_from_float32>{});
    case Type::kFloat32:
      return f(SameElement<float>{});
    case Type::kFloat64:
      return f(SameElement<double>{});
    case Type::kFloat8E4m3:
      return f(NarrowElement<std::uint8_t, float32_from_float8_e4m3, float8_e4m3_from_float32>{});
    default:
      return f(NarrowElement<std::uint8_t, float32_from_float8_e5m2, float8_e5m2_from_float32>{});
  }
}

}  // namespace treering
