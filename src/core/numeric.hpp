// Conversions between float32 and the 8- and 16-bit floats, one number at a time: the definition
// that the vector kernels (reduce_codecs-inl.hpp) must equal bit for bit.
//
// Widening is exact. Narrowing rounds to nearest, ties to even, with subnormals. A NaN becomes the
// type's quiet NaN: sign clear, only the leading mantissa bit set (float16 0x7e00, bfloat16 0x7fc0,
// e5m2 0x7e; e4m3 has no other than 0x7f, or 0xff, which we never write). Overflow becomes
// infinity, in e4m3, which has none, NaN: everything above 464, the midpoint between the largest
// number, 448, and the next step.
//
// float8_e4m3 is OCP's e4m3fn, float8_e5m2 OCP's e5m2 ("OCP 8-bit Floating Point Specification",
// 2023).
#pragma once

#include <bit>
#include <cstdint>

#include "core/macros.hpp"

namespace treering {

// A floating-point format narrower than float32 in its exponent too: sign, exponent, mantissa, from
// the top bit down. The constants are shared with the vector kernels.
template <int kExponentBits, int kMantissa, bool kHasInfinity>
struct NarrowFormat {
  static constexpr int kMantissaBits = kMantissa;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kDroppedBits = 23 - kMantissaBits;  // of a float32's mantissa
  static constexpr int kSignShift = 31 - (kExponentBits + kMantissaBits);
  static constexpr bool kInfinite = kHasInfinity;

  static constexpr std::uint32_t kMagnitudeMask = (1u << (kExponentBits + kMantissaBits)) - 1;
  static constexpr std::uint32_t kFirstNormal = 1u << kMantissaBits;
  static constexpr std::uint32_t kInfinity = kMagnitudeMask & ~(kFirstNormal - 1);
  static constexpr std::uint32_t kQuietNan =
      kHasInfinity ? kInfinity | (kFirstNormal >> 1) : kMagnitudeMask;
  static constexpr std::uint32_t kOverflow = kHasInfinity ? kInfinity : kQuietNan;

  // Bit patterns of float32: what a magnitude shifted into place still lacks in its exponent; the
  // smallest normal number; the step between subnormals; and the number whose last mantissa bit is
  // that step, so that adding it rounds a smaller number to a whole number of steps.
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  static constexpr std::uint32_t kFirstNormalBits = kRebias + (1u << 23);
  static constexpr std::uint32_t kStepBits = static_cast<std::uint32_t>(128 - kBias - kMantissaBits)
                                             << 23;
  static constexpr std::uint32_t kRounderBits = kStepBits + (23u << 23);
};
using Float16Format = NarrowFormat<5, 10, true>;
using Float8E4m3Format = NarrowFormat<4, 3, false>;
using Float8E5m2Format = NarrowFormat<5, 2, true>;

inline constexpr std::uint32_t kFloat32Infinity = 0x7f800000u;
inline constexpr std::uint32_t kFloat32QuietNan = 0x7fc00000u;

template <class Format>
TR_HD constexpr float widen(std::uint32_t code) {
  const std::uint32_t sign = (code & (Format::kMagnitudeMask + 1)) << Format::kSignShift;
  const std::uint32_t magnitude = code & Format::kMagnitudeMask;
  if (magnitude > Format::kInfinity && (Format::kInfinite || magnitude == Format::kQuietNan)) {
    return std::bit_cast<float>(kFloat32QuietNan);
  }
  if (Format::kInfinite && magnitude == Format::kInfinity) {
    return std::bit_cast<float>(sign | kFloat32Infinity);
  }
  if (magnitude < Format::kFirstNormal) {
    const float value = static_cast<float>(magnitude) * std::bit_cast<float>(Format::kStepBits);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << Format::kDroppedBits) + Format::kRebias));
}

template <class Format>
TR_HD constexpr std::uint32_t narrow(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kFloat32Infinity) return Format::kQuietNan;
  std::uint32_t code = 0;
  if (magnitude < Format::kFirstNormalBits) {
    const float rounded =
        std::bit_cast<float>(magnitude) + std::bit_cast<float>(Format::kRounderBits);
    code = std::bit_cast<std::uint32_t>(rounded) - Format::kRounderBits;
  } else {
    const std::uint32_t odd = (magnitude >> Format::kDroppedBits) & 1;
    const std::uint32_t below_half = (1u << (Format::kDroppedBits - 1)) - 1;
    code = (magnitude - Format::kRebias + below_half + odd) >> Format::kDroppedBits;
    if (code >= Format::kOverflow) code = Format::kOverflow;
  }
  if (code == Format::kQuietNan) return code;
  return code | ((bits >> Format::kSignShift) & (Format::kMagnitudeMask + 1));
}

TR_HD constexpr float float32_from_float16(std::uint16_t code) {
  return widen<Float16Format>(code);
}
TR_HD constexpr float float32_from_float8_e4m3(std::uint8_t code) {
  return widen<Float8E4m3Format>(code);
}
TR_HD constexpr float float32_from_float8_e5m2(std::uint8_t code) {
  return widen<Float8E5m2Format>(code);
}
TR_HD constexpr float float32_from_bfloat16(std::uint16_t code) {
  std::uint32_t bits = static_cast<std::uint32_t>(code) << 16;
  if ((bits & 0x7fffffffu) > kFloat32Infinity) bits = kFloat32QuietNan;
  return std::bit_cast<float>(bits);
}

TR_HD constexpr std::uint16_t float16_from_float32(float value) {
  return static_cast<std::uint16_t>(narrow<Float16Format>(value));
}
TR_HD constexpr std::uint8_t float8_e4m3_from_float32(float value) {
  return static_cast<std::uint8_t>(narrow<Float8E4m3Format>(value));
}
TR_HD constexpr std::uint8_t float8_e5m2_from_float32(float value) {
  return static_cast<std::uint8_t>(narrow<Float8E5m2Format>(value));
}
TR_HD constexpr std::uint16_t bfloat16_from_float32(float value) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > kFloat32Infinity) bits = kFloat32QuietNan;
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

}  // namespace treering
