// Element by element: the rules of a reduction as plainly as C++ can say them.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/numeric.hpp"
#include "engine/reduce_folds.hpp"

namespace treering {
namespace {

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

template <RedOp op, class T>
T combine(T a, T b) {
  if constexpr (op == RedOp::kMin || op == RedOp::kMax) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
      if (a == b) return std::signbit(a) == (op == RedOp::kMin) ? a : b;  // zeros differ in sign
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

template <class Element, RedOp op>
void fold(const ReduceArgs& args, std::size_t first_elem, std::size_t elems) {
  using Stored = typename Element::Stored;
  using Folded = typename Element::Folded;
  const auto load = [&args](int input, std::size_t index) {
    Stored stored;
    std::memcpy(&stored,
                static_cast<const std::uint8_t*>(args.inputs[input]) + index * sizeof(Stored),
                sizeof(Stored));
    Folded value = Element::load(stored);
    if constexpr (std::is_floating_point_v<Folded>) {
      if (input == args.scaled_input) {
        value = Element::load(Element::store(value * static_cast<Folded>(args.scale_in)));
      }
    }
    return value;
  };
  for (std::size_t i = first_elem; i < first_elem + elems; ++i) {
    Folded total = load(0, i);
    for (int input = 1; input < args.num_inputs; ++input) {
      total = combine<op>(total, load(input, i));
    }
    if constexpr (std::is_floating_point_v<Folded>) {
      if (args.divisor != 1) total *= static_cast<Folded>(1.0 / args.divisor);
    }
    const Stored stored = Element::store(total);
    for (int output = 0; output < args.num_outputs; ++output) {
      std::memcpy(static_cast<std::uint8_t*>(args.outputs[output]) + i * sizeof(Stored), &stored,
                  sizeof(Stored));
    }
  }
}

template <class Element>
void fold(const ReduceArgs& args, std::size_t first_elem, std::size_t elems) {
  switch (args.op) {
    case RedOp::kProd:
      return fold<Element, RedOp::kProd>(args, first_elem, elems);
    case RedOp::kMin:
      return fold<Element, RedOp::kMin>(args, first_elem, elems);
    case RedOp::kMax:
      return fold<Element, RedOp::kMax>(args, first_elem, elems);
    default:
      return fold<Element, RedOp::kSum>(args, first_elem, elems);
  }
}

}  // namespace

void fold_scalars(const ReduceArgs& args, std::size_t first_elem, std::size_t elems) {
  switch (args.type) {
    case Type::kInt8:
      return fold<SameElement<std::int8_t>>(args, first_elem, elems);
    case Type::kUint8:
      return fold<SameElement<std::uint8_t>>(args, first_elem, elems);
    case Type::kInt32:
      return fold<SameElement<std::int32_t>>(args, first_elem, elems);
    case Type::kUint32:
      return fold<SameElement<std::uint32_t>>(args, first_elem, elems);
    case Type::kInt64:
      return fold<SameElement<std::int64_t>>(args, first_elem, elems);
    case Type::kUint64:
      return fold<SameElement<std::uint64_t>>(args, first_elem, elems);
    case Type::kFloat16:
      return fold<NarrowElement<std::uint16_t, float32_from_float16, float16_from_float32>>(
          args, first_elem, elems);
    case Type::kBfloat16:
      return fold<NarrowElement<std::uint16_t, float32_from_bfloat16, bfloat16_from_float32>>(
          args, first_elem, elems);
    case Type::kFloat32:
      return fold<SameElement<float>>(args, first_elem, elems);
    case Type::kFloat64:
      return fold<SameElement<double>>(args, first_elem, elems);
    case Type::kFloat8E4m3:
      return fold<NarrowElement<std::uint8_t, float32_from_float8_e4m3, float8_e4m3_from_float32>>(
          args, first_elem, elems);
    case Type::kFloat8E5m2:
      return fold<NarrowElement<std::uint8_t, float32_from_float8_e5m2, float8_e5m2_from_float32>>(
          args, first_elem, elems);
  }
}

}  // namespace treering
