// Which C++ types travel, and which ranges of them are buffers.
//
// Integers of 8 (signed and unsigned), 32 and 64 bits, float and double are deduced. For the small
// floats C++20 has no type: tr::Float16 and its like hold the bits only (their arithmetic is
// yours). A type of your own joins by naming its wire type:
//   template <> inline constexpr tr_type_t tr::kTypeOf<my::half> = TR_FLOAT16;
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>

#include "treering/treering.h"

namespace tr {

struct Float16 {  // IEEE binary16
  std::uint16_t bits;
};
struct BFloat16 {  // the upper half of a binary32
  std::uint16_t bits;
};
struct Float8E4M3 {  // OCP e4m3fn
  std::uint8_t bits;
};
struct Float8E5M2 {  // OCP e5m2
  std::uint8_t bits;
};

namespace detail {
template <class T>
constexpr tr_type_t integer_type() {
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    constexpr bool is_signed = std::signed_integral<T>;
    if constexpr (sizeof(T) == 1) return is_signed ? TR_INT8 : TR_UINT8;
    if constexpr (sizeof(T) == 4) return is_signed ? TR_INT32 : TR_UINT32;
    if constexpr (sizeof(T) == 8) return is_signed ? TR_INT64 : TR_UINT64;
  }
  return TR_NUM_TYPES;
}
}  // namespace detail

// TR_NUM_TYPES: not a type that travels.
template <class T>
inline constexpr tr_type_t kTypeOf = detail::integer_type<T>();
template <>
inline constexpr tr_type_t kTypeOf<float> = TR_FLOAT32;
template <>
inline constexpr tr_type_t kTypeOf<double> = TR_FLOAT64;
template <>
inline constexpr tr_type_t kTypeOf<Float16> = TR_FLOAT16;
template <>
inline constexpr tr_type_t kTypeOf<BFloat16> = TR_BFLOAT16;
template <>
inline constexpr tr_type_t kTypeOf<Float8E4M3> = TR_FLOAT8_E4M3;
template <>
inline constexpr tr_type_t kTypeOf<Float8E5M2> = TR_FLOAT8_E5M2;
template <>
inline constexpr tr_type_t kTypeOf<std::byte> = TR_UINT8;

template <class T>
concept Element = kTypeOf<T>
!= TR_NUM_TYPES&& std::is_trivially_copyable_v<T>;

// std::vector, std::array, std::span, T[n], tr::HostBuffer. Borrowed: a temporary vector is
// refused, since an operation on a stream may still use it after the call.
template <class R>
concept Buffer = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    std::ranges::borrowed_range<R> && Element<std::ranges::range_value_t<R>>;
template <class R>
concept MutableBuffer =
    Buffer<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;
template <class A, class B>
concept SameElement = std::same_as<std::ranges::range_value_t<A>, std::ranges::range_value_t<B>>;

template <class R>
inline constexpr tr_type_t kTypeIn = kTypeOf<std::ranges::range_value_t<R>>;

}  // namespace tr
