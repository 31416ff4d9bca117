// What a reduction must give, computed the long way: numbers are doubles taken from and searched in
// the definition of each format, nothing is shared with the library's conversions or kernels.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/types.hpp"

namespace treering::reference {

// A floating-point format: sign, exponent and mantissa bits. finite_max: the largest finite code.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  std::uint64_t finite_max;
  std::uint64_t overflow;  // code of what is too large
  std::uint64_t quiet_nan;

  std::uint64_t sign() const { return std::uint64_t{1} << (exponent_bits + mantissa_bits); }
};

inline Format format_of(Type type) {
  switch (type) {
    case Type::kFloat16:
      return {5, 10, 0x7bff, 0x7c00, 0x7e00};
    case Type::kBfloat16:
      return {8, 7, 0x7f7f, 0x7f80, 0x7fc0};
    case Type::kFloat8E4m3:
      return {4, 3, 0x7e, 0x7f, 0x7f};
    case Type::kFloat8E5m2:
      return {5, 2, 0x7b, 0x7c, 0x7e};
    case Type::kFloat32:
      return {8, 23, 0x7f7fffff, 0x7f800000, 0x7fc00000};
    default:
      return {11, 52, 0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff8000000000000};
  }
}

// The value of a code's magnitude by the textbook formula, taken past the finite codes too.
inline double magnitude_value(const Format& format, std::uint64_t magnitude) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const auto exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const std::uint64_t one = std::uint64_t{1} << format.mantissa_bits;
  const std::uint64_t mantissa = magnitude & (one - 1);
  return exponent == 0 ? std::ldexp(static_cast<double>(mantissa), 1 - bias - format.mantissa_bits)
                       : std::ldexp(static_cast<double>(one + mantissa),
                                    exponent - bias - format.mantissa_bits);
}

inline double decode(Type type, std::uint64_t code) {
  const Format format = format_of(type);
  const std::uint64_t magnitude = code & (format.sign() - 1);
  double value = std::numeric_limits<double>::quiet_NaN();
  if (magnitude <= format.finite_max) {
    value = magnitude_value(format, magnitude);
  } else if (magnitude == format.overflow && format.overflow != format.quiet_nan) {
    value = std::numeric_limits<double>::infinity();
  }
  return (code & format.sign()) != 0 ? -value : value;
}

// Nearest, ties to the even code: the largest code not above the value, or the one after it.
inline std::uint64_t encode(Type type, double value) {
  const Format format = format_of(type);
  if (std::isnan(value)) return format.quiet_nan;
  if (type == Type::kFloat64) return std::bit_cast<std::uint64_t>(value);
  const std::uint64_t sign = std::signbit(value) ? format.sign() : 0;
  const double magnitude = std::fabs(value);
  std::uint64_t below = 0;
  for (std::uint64_t bit = format.sign() >> 1; bit != 0; bit >>= 1) {
    const std::uint64_t next = below | bit;
    if (next <= format.finite_max && magnitude_value(format, next) <= magnitude) below = next;
  }
  const double middle =
      (magnitude_value(format, below) + magnitude_value(format, below + 1)) / 2;  // exact
  std::uint64_t code = below;
  if (magnitude > middle || (magnitude == middle && (below & 1) != 0)) ++code;
  if (code > format.finite_max) code = format.overflow;
  return code == format.quiet_nan ? code : sign | code;
}

struct Operation {
  Type type = Type::kFloat32;
  RedOp op = RedOp::kSum;
  int scaled_input = -1;
  double scale_in = 1.0;
  std::uint32_t divisor = 1;
};

// Rounds to what the fold of `type` holds. A sum or product of two float32, taken in double and
// rounded again, is the float32 sum or product: 53 bits are more than twice 24 and two.
inline double fold_rounded(Type type, double value) {
  return type == Type::kFloat64 ? value : static_cast<double>(static_cast<float>(value));
}

inline double combine_floats(const Operation& operation, double a, double b) {
  if (operation.op == RedOp::kSum) return fold_rounded(operation.type, a + b);
  if (operation.op == RedOp::kProd) return fold_rounded(operation.type, a * b);
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  const bool a_first = a < b || (a == b && std::signbit(a));  // -0 before +0
  return a_first == (operation.op == RedOp::kMin) ? a : b;
}

inline std::uint64_t fold_floats(const Operation& operation, const std::uint64_t* codes, int n) {
  const Type type = operation.type;
  double total = 0;
  for (int k = 0; k < n; ++k) {
    double value = decode(type, codes[k]);
    if (k == operation.scaled_input) {
      const double factor = fold_rounded(type, operation.scale_in);
      value = decode(type, encode(type, fold_rounded(type, value * factor)));
    }
    total = k == 0 ? value : combine_floats(operation, total, value);
  }
  if (operation.divisor != 1) {
    total = fold_rounded(type, total * fold_rounded(type, 1.0 / operation.divisor));
  }
  return encode(type, total);
}

// Integers as 128-bit numbers, cut to their width after each step.
inline std::uint64_t fold_integers(const Operation& operation, const std::uint64_t* codes, int n) {
  const int bits = static_cast<int>(type_bytes(operation.type)) * 8;
  const bool is_signed = operation.type == Type::kInt8 || operation.type == Type::kInt32 ||
                         operation.type == Type::kInt64;
  const __int128 range = static_cast<__int128>(1) << bits;
  const auto wrapped = [&](__int128 value) {
    value = ((value % range) + range) % range;
    return is_signed && value >= range / 2 ? value - range : value;
  };
  __int128 total = wrapped(codes[0]);
  for (int k = 1; k < n; ++k) {
    const __int128 value = wrapped(codes[k]);
    switch (operation.op) {
      case RedOp::kProd:
        total = wrapped(static_cast<__int128>(static_cast<unsigned __int128>(total) *
                                              static_cast<unsigned __int128>(value)));
        break;
      case RedOp::kMin:
        total = std::min(total, value);
        break;
      case RedOp::kMax:
        total = std::max(total, value);
        break;
      default:
        total = wrapped(total + value);
    }
  }
  total /= operation.divisor;  // C++ truncates toward zero
  const std::uint64_t mask = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  return static_cast<std::uint64_t>(total) & mask;
}

// codes[k]: one element of input k, in the low bytes.
inline std::uint64_t fold(const Operation& operation, const std::vector<std::uint64_t>& codes) {
  const int n = static_cast<int>(codes.size());
  return is_float(operation.type) ? fold_floats(operation, codes.data(), n)
                                  : fold_integers(operation, codes.data(), n);
}

}  // namespace treering::reference
