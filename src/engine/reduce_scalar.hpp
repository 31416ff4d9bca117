// The rules of the reduction, one element at a time. reduce.cpp runs them for vectors too short to
// be worth a vector register; the vector kernels must equal them bit for bit.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/types.hpp"
#include "engine/numeric.hpp"
#include "engine/reduce.hpp"

namespace treering {

// Stored: the type in memory. Folded: the type in which inputs are combined.
template <class T>
struct SameElement {
  using Stored = T;
  using Folded = T;
  static T load(T value) { return value; }
  static T store(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(value)) return std::numeric_limits<T>::quiet_NaN();
    }
    return value;
  }
};

template <class T, float (*kWiden)(T), T (*kNarrow)(float)>
struct NarrowElement {
  using Stored = T;
  using Folded = float;
  static float load(T value) { return kWiden(value); }
  static T store(float value) { return kNarrow(value); }
};

using Float16Element = NarrowElement<std::uint16_t, float32_from_float16, float16_from_float32>;
using Bfloat16Element = NarrowElement<std::uint16_t, float32_from_bfloat16, bfloat16_from_float32>;
using Float8E4m3Element =
    NarrowElement<std::uint8_t, float32_from_float8_e4m3, float8_e4m3_from_float32>;
using Float8E5m2Element =
    NarrowElement<std::uint8_t, float32_from_float8_e5m2, float8_e5m2_from_float32>;

template <RedOp op, class T>
T combine(T a, T b) {
  if constexpr (op == RedOp::kMin || op == RedOp::kMax) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
      if (a == b)
        return std::signbit(a) == (op == RedOp::kMin) ? a : b;  // zeros may differ in sign
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

// Truncates toward zero.
template <class T>
T divide_integer(T value, std::uint32_t divisor) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
}

template <class Element, RedOp op>
void fold_scalar(const ReduceArgs& args) {
  using Stored = typename Element::Stored;
  using Folded = typename Element::Folded;
  const auto load = [&args](int input, std::size_t index) {
    Stored stored;
    std::memcpy(&stored,
                static_cast<const unsigned char*>(args.inputs[input]) + index * sizeof(Stored),
                sizeof(Stored));
    Folded value = Element::load(stored);
    if constexpr (std::is_floating_point_v<Folded>) {
      if (input < 64 && ((args.scaled_inputs >> input) & 1) != 0) {
        value = Element::load(Element::store(value * static_cast<Folded>(args.scale_in)));
      }
    }
    return value;
  };
  for (std::size_t i = 0; i < args.elems; ++i) {
    Folded total = load(0, i);
    for (int input = 1; input < args.num_inputs; ++input) {
      total = combine<op>(total, load(input, i));
    }
    if (args.divisor != 1) {
      if constexpr (std::is_floating_point_v<Folded>) {
        total *= static_cast<Folded>(1.0 / args.divisor);
      } else {
        total = divide_integer(total, args.divisor);
      }
    }
    const Stored stored = Element::store(total);
    for (int output = 0; output < args.num_outputs; ++output) {
      std::memcpy(static_cast<unsigned char*>(args.outputs[output]) + i * sizeof(Stored), &stored,
                  sizeof(Stored));
    }
  }
}

}  // namespace treering
