// The element types as C++ types, with conversions to and from double written here from the
// formats' definitions: the expectation of a benchmark must not come from the code that it
// measures.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "treering/treering.h"

namespace treering::perf {

// A floating-point format of 8 or 16 bits. kInfinity false: OCP e4m3fn, whose top exponent holds
// numbers, whose only NaN has all bits set and whose overflow is NaN.
template <class StorageT, int kExponentBitsT, int kMantissaBitsT, bool kInfinityT>
struct SmallFloat {
  using Storage = StorageT;
  static constexpr int kMantissaBits = kMantissaBitsT;
  static constexpr bool kInfinity = kInfinityT;
  static constexpr int kBias = (1 << (kExponentBitsT - 1)) - 1;
  static constexpr int kMinExponent = 1 - kBias;  // of the normal numbers
  static constexpr unsigned kTop = ((1u << kExponentBitsT) - 1) << kMantissaBitsT;
  static constexpr unsigned kMagnitude = kTop | ((1u << kMantissaBitsT) - 1);
  static constexpr unsigned kSign = kMagnitude + 1;
  static constexpr unsigned kMaxFinite = kInfinity ? kTop - 1 : kMagnitude - 1;
  static constexpr unsigned kQuietNan =
      kInfinity ? kTop | (1u << (kMantissaBitsT - 1)) : kMagnitude;

  Storage bits;
};

using Float16 = SmallFloat<std::uint16_t, 5, 10, true>;
using Bfloat16 = SmallFloat<std::uint16_t, 8, 7, true>;
using Float8E4m3 = SmallFloat<std::uint8_t, 4, 3, false>;
using Float8E5m2 = SmallFloat<std::uint8_t, 5, 2, true>;

// 2^exponent for the exponents of normal doubles.
constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

template <class F>
double to_double(F value) {
  if constexpr (std::is_floating_point_v<F>) {
    return value;
  } else {
    const unsigned magnitude = value.bits & F::kMagnitude;
    const double sign = (value.bits & F::kSign) != 0 ? -1.0 : 1.0;
    if (F::kInfinity ? magnitude > F::kTop : magnitude == F::kMagnitude) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    if (F::kInfinity && magnitude == F::kTop) return sign * std::numeric_limits<double>::infinity();
    const int field = static_cast<int>(magnitude >> F::kMantissaBits);
    const unsigned fraction = magnitude & ((1u << F::kMantissaBits) - 1);
    const unsigned significand = field == 0 ? fraction : fraction | (1u << F::kMantissaBits);
    const int exponent = (field == 0 ? 1 : field) - F::kBias - F::kMantissaBits;
    return sign * significand * power_of_two(exponent);
  }
}

// Rounds to nearest, ties to even.
template <class F>
F from_double(double value) {
  if constexpr (std::is_floating_point_v<F>) {
    return static_cast<F>(value);
  } else {
    using Storage = typename F::Storage;
    if (std::isnan(value)) return {static_cast<Storage>(F::kQuietNan)};
    const auto raw = std::bit_cast<std::uint64_t>(value);
    const unsigned sign = (raw >> 63) != 0 ? F::kSign : 0;
    const int exponent = static_cast<int>((raw >> 52) & 0x7ff) - 1023;
    const std::uint64_t significand = (raw & ((1ull << 52) - 1)) | (1ull << 52);
    // Below the normal numbers the unit in the last place stays that of the smallest of them.
    const int scale = exponent < F::kMinExponent ? F::kMinExponent : exponent;
    const int shift = 52 - F::kMantissaBits + (scale - exponent);
    std::uint64_t magnitude = 0;
    if (shift <= 54) {
      const std::uint64_t half = 1ull << (shift - 1);
      const std::uint64_t rest = significand & ((half << 1) - 1);
      magnitude = significand >> shift;
      if (rest > half || (rest == half && (magnitude & 1) != 0)) ++magnitude;
      // A normal significand carries its leading one into the exponent field.
      magnitude += static_cast<std::uint64_t>(scale - F::kMinExponent) << F::kMantissaBits;
    }
    if (magnitude > F::kMaxFinite) magnitude = F::kInfinity ? F::kTop : F::kQuietNan;
    return {static_cast<Storage>(sign | magnitude)};
  }
}

template <class F>
F max_finite() {
  if constexpr (std::is_floating_point_v<F>) {
    return std::numeric_limits<F>::max();
  } else {
    return {static_cast<typename F::Storage>(F::kMaxFinite)};
  }
}

// Calls fn(std::type_identity<T>{}) with the C++ type of `type`.
template <class Fn>
decltype(auto) with_type(tr_type_t type, Fn&& fn) {
  switch (type) {
    case TR_INT8:
      return fn(std::type_identity<std::int8_t>{});
    case TR_UINT8:
      return fn(std::type_identity<std::uint8_t>{});
    case TR_INT32:
      return fn(std::type_identity<std::int32_t>{});
    case TR_UINT32:
      return fn(std::type_identity<std::uint32_t>{});
    case TR_INT64:
      return fn(std::type_identity<std::int64_t>{});
    case TR_UINT64:
      return fn(std::type_identity<std::uint64_t>{});
    case TR_FLOAT16:
      return fn(std::type_identity<Float16>{});
    case TR_BFLOAT16:
      return fn(std::type_identity<Bfloat16>{});
    case TR_FLOAT64:
      return fn(std::type_identity<double>{});
    case TR_FLOAT8_E4M3:
      return fn(std::type_identity<Float8E4m3>{});
    case TR_FLOAT8_E5M2:
      return fn(std::type_identity<Float8E5m2>{});
    default:
      return fn(std::type_identity<float>{});
  }
}

}  // namespace treering::perf
