// Element types: how the four types of a View are stored, and the type they are computed in.
//
// fp16 and bf16 only store: a number is widened (exactly), computed in float, and rounded once, to
// nearest, ties to even, when it is stored. The conversions have no branches, so that loops over
// them are vectorised.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "treering/element.hpp"
#include "treering/parallel/tensor.hpp"

// One body, compiled for several instruction sets, chosen when the program starts. None of them
// fuses a*b+c (-ffp-contract=off), so they agree bit for bit. A sanitizer's runtime is not up yet
// when the choice is made.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TR_PAR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TR_PAR_CLONES
#endif

// The same arithmetic on the host and in kernels.
#ifdef __CUDACC__
#define TR_PAR_HD __host__ __device__
#else
#define TR_PAR_HD
#endif

namespace tr::par {

// accumulator_of, as a C++ type.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

TR_PAR_HD inline double widen(double x) { return x; }
TR_PAR_HD inline float widen(float x) { return x; }
TR_PAR_HD inline float widen(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
// The magnitude's bits at a float's place are the number times 2^-112, subnormals too; infinities
// and NaNs land above 65504 and get a float's largest exponent.
TR_PAR_HD inline float widen(Float16 x) {
  const std::uint32_t sign = (x.bits & 0x8000u) << 16;
  const float magnitude =
      std::bit_cast<float>(static_cast<std::uint32_t>(x.bits & 0x7fffu) << 13) * 0x1p112f;
  const std::uint32_t special = magnitude >= 65536.0f ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | special | sign);
}

template <class T>
TR_PAR_HD T narrow(Accumulator<T> x);
template <>
TR_PAR_HD inline double narrow<double>(double x) {
  return x;
}
template <>
TR_PAR_HD inline float narrow<float>(float x) {
  return x;
}
template <>
TR_PAR_HD inline BFloat16 narrow<BFloat16>(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<std::uint16_t>(is_nan ? 0x7fc0u : rounded)};
}
template <>
TR_PAR_HD inline Float16 narrow<Float16>(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14: the sum's last bit is the step between subnormals, so adding rounds to it.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  std::uint32_t code = magnitude < 0x38800000u ? subnormal : normal;
  code = magnitude >= 0x477ff000u ? 0x7c00u : code;  // 65520 and more: infinity
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  return {static_cast<std::uint16_t>(magnitude > 0x7f800000u ? 0x7e00u : (code | sign))};
}

// Calls body with a value of the element type, whose value means nothing: [](auto element).
template <class Body>
auto with_type(DType type, Body&& body) {
  switch (type) {
    case DType::kFloat64:
      return body(double{});
    case DType::kBFloat16:
      return body(BFloat16{});
    case DType::kFloat16:
      return body(Float16{});
    case DType::kFloat32:
      break;
  }
  return body(float{});
}

// The same, of a type that is its own accumulator.
template <class Body>
auto with_accumulator(DType type, Body&& body) {
  return type == DType::kFloat64 ? body(double{}) : body(float{});
}

template <class T>
TR_PAR_HD T* row_of(const View& view, std::int64_t row) {
  return static_cast<T*>(view.data) + row * view.stride;
}

}  // namespace tr::par
