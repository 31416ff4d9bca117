// The reduction rules of engine/reduce.hpp, stated a second time for the replay oracle: plain
// arithmetic on one number at a time, by other means than the engine's bit tricks. For
// algos/oracle.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/types.hpp"

namespace treering::algos {

// Load and store of an element type whose folds are in the type itself.
template <class T>
struct PlainNumber {
  using Folded = T;
  static constexpr std::size_t kBytes = sizeof(T);
  static T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  static void store(std::byte* to, T value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
    }
    std::memcpy(to, &value, sizeof value);
  }
};

// An 8- or 16-bit float, folded in float32. Its value is significand * 2^(exponent - bias -
// mantissa bits); double holds every such value and every float32, so the arithmetic here is exact
// up to the one rounding.
template <class Code, int kExponentBits, int kMantissaBits, bool kHasInfinity>
struct NarrowNumber {
  using Folded = float;
  static constexpr std::size_t kBytes = sizeof(Code);
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kHidden = 1 << kMantissaBits;
  static constexpr int kTopExponent = (1 << kExponentBits) - 1;
  static constexpr int kSign = 1 << (kExponentBits + kMantissaBits);
  // The code that overflow gives, and the one of the quiet NaN.
  static constexpr int kInfinity = kTopExponent * kHidden;
  static constexpr int kNan = kHasInfinity ? kInfinity + kHidden / 2 : kInfinity + kHidden - 1;

  static float load(const std::byte* from) {
    Code code;
    std::memcpy(&code, from, sizeof code);
    const int exponent = (code & (kSign - 1)) / kHidden, mantissa = code % kHidden;
    double value = 0;
    if (kHasInfinity && exponent == kTopExponent) {
      value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                            : std::numeric_limits<double>::quiet_NaN();
    } else if (!kHasInfinity && (code & (kSign - 1)) == kNan) {
      value = std::numeric_limits<double>::quiet_NaN();
    } else {
      const int significand = exponent == 0 ? mantissa : mantissa + kHidden;
      value = std::ldexp(significand, std::max(exponent, 1) - kBias - kMantissaBits);
    }
    return static_cast<float>((code & kSign) != 0 ? -value : value);
  }

  static void store(std::byte* to, float value) {
    const Code code = static_cast<Code>(encode(value));
    std::memcpy(to, &code, sizeof code);
  }

 private:
  static int encode(float value) {
    if (std::isnan(value)) return kNan;
    const int sign = std::signbit(value) ? kSign : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    if (magnitude == 0) return sign;
    int code = std::numeric_limits<int>::max();
    if (!std::isinf(magnitude)) {
      const int exponent = std::max(std::ilogb(magnitude), 1 - kBias);
      // Ties to even: the default rounding mode.
      const double significand = std::nearbyint(std::ldexp(magnitude, kMantissaBits - exponent));
      if (exponent <= kTopExponent) {
        code = (exponent + kBias - 1) * kHidden + static_cast<int>(significand);
      }
    }
    if constexpr (kHasInfinity) return sign + std::min(code, kInfinity);
    return code >= kNan ? kNan : sign + code;
  }
};

using OracleFloat16 = NarrowNumber<std::uint16_t, 5, 10, true>;
using OracleBfloat16 = NarrowNumber<std::uint16_t, 8, 7, true>;
using OracleFloat8E4m3 = NarrowNumber<std::uint8_t, 4, 3, false>;
using OracleFloat8E5m2 = NarrowNumber<std::uint8_t, 5, 2, true>;

// Calls f with the number type of `type`.
template <class F>
void with_number(Type type, F&& f) {
  switch (type) {
    case Type::kInt8:
      return f(PlainNumber<std::int8_t>());
    case Type::kUint8:
      return f(PlainNumber<std::uint8_t>());
    case Type::kInt32:
      return f(PlainNumber<std::int32_t>());
    case Type::kUint32:
      return f(PlainNumber<std::uint32_t>());
    case Type::kInt64:
      return f(PlainNumber<std::int64_t>());
    case Type::kUint64:
      return f(PlainNumber<std::uint64_t>());
    case Type::kFloat16:
      return f(OracleFloat16());
    case Type::kBfloat16:
      return f(OracleBfloat16());
    case Type::kFloat32:
      return f(PlainNumber<float>());
    case Type::kFloat64:
      return f(PlainNumber<double>());
    case Type::kFloat8E4m3:
      return f(OracleFloat8E4m3());
    case Type::kFloat8E5m2:
      return f(OracleFloat8E5m2());
  }
}

// left op right. Integers wrap; in min and max NaN wins and -0 < +0.
template <class T>
T combine_numbers(RedOp op, T left, T right) {
  if (op == RedOp::kSum || op == RedOp::kProd) {
    if constexpr (std::is_floating_point_v<T>) {
      return op == RedOp::kSum ? left + right : left * right;
    } else {
      // 64 bits hold the wrapped result of every integer type in their low bits.
      const auto a = static_cast<std::uint64_t>(left), b = static_cast<std::uint64_t>(right);
      return static_cast<T>(op == RedOp::kSum ? a + b : a * b);
    }
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(left) || std::isnan(right)) return std::numeric_limits<T>::quiet_NaN();
    if (left == 0 && right == 0) {
      const bool left_is_less = std::signbit(left);
      return left_is_less == (op == RedOp::kMin) ? left : right;
    }
  }
  return op == RedOp::kMin ? std::min(left, right) : std::max(left, right);
}

template <class T>
T divide_number(T value, std::uint32_t divisor) {
  if (divisor == 1) return value;
  if constexpr (std::is_floating_point_v<T>) {
    return value * (T{1} / static_cast<T>(divisor));
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(divisor));
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(value) / divisor);
  }
}

}  // namespace treering::algos
