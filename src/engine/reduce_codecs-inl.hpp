// How each element type lies in vector registers: compiled once per instruction set, by
// reduce_kernels.cpp. A codec takes one register's worth of stored elements (kStepBytes) apart into
// kPlanes registers of the type to fold in, and puts them together again, rounding once. The order
// of the elements in the planes is the codec's own business: fold and rounding work lane by lane.
//
// Narrow elements are cut out of 32-bit lanes with shifts, which costs fewer instructions than
// moving them between lanes; and all rounding is integer arithmetic of ours, because Highway 1.0.3
// truncates to bfloat16 and flushes float16 subnormals where the CPU has no instruction for them.
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/numeric.hpp"
#include "hwy/highway.h"

// Highway's include guard for code that is compiled per instruction set.
#if defined(TREERING_ENGINE_REDUCE_CODECS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TREERING_ENGINE_REDUCE_CODECS_INL_HPP
#undef TREERING_ENGINE_REDUCE_CODECS_INL_HPP
#else
#define TREERING_ENGINE_REDUCE_CODECS_INL_HPP
#endif

HWY_BEFORE_NAMESPACE();
namespace treering {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sign and the payload of a computed NaN differ between CPUs; the quiet NaN has one pattern.
template <class V>
HWY_INLINE V canonical_nan(V v) {
  const hn::DFromV<V> d;
  using Lane = hn::TFromD<decltype(d)>;
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<Lane>::quiet_NaN()), v);
}

// RawTag: the register as stored. FoldTag: its planes.
template <class RawLane, class FoldLane, int kNumPlanes>
struct CodecShape {
  using RawTag = hn::ScalableTag<RawLane>;
  using FoldTag = hn::ScalableTag<FoldLane>;
  using Raw = hn::Vec<RawTag>;
  using Fold = hn::Vec<FoldTag>;
  using Folded = FoldLane;
  static constexpr int kPlanes = kNumPlanes;
  static constexpr std::size_t kStepBytes = hn::MaxLanes(RawTag()) * sizeof(RawLane);
  static constexpr std::size_t kElementBytes = kStepBytes / (hn::MaxLanes(FoldTag()) * kPlanes);
};

// Folded as stored: integers (but 8-bit products), float32, float64.
template <class T>
struct PlainCodec : CodecShape<T, T, 1> {
  using Shape = CodecShape<T, T, 1>;
  static HWY_INLINE void unpack(typename Shape::Raw raw, typename Shape::Fold* planes) {
    planes[0] = raw;
  }
  static HWY_INLINE typename Shape::Raw pack(const typename Shape::Fold* planes) {
    if constexpr (hwy::IsFloat<T>()) {
      return canonical_nan(planes[0]);
    } else {
      return planes[0];
    }
  }
};

// No instruction multiplies bytes: even and odd ones as 16-bit lanes, whose upper halves are noise.
struct ByteProductCodec : CodecShape<std::uint16_t, std::uint16_t, 2> {
  static HWY_INLINE void unpack(Raw raw, Fold* planes) {
    planes[0] = raw;
    planes[1] = hn::ShiftRight<8>(raw);
  }
  static HWY_INLINE Raw pack(const Fold* planes) {
    return hn::Or(hn::And(planes[0], hn::Set(RawTag(), std::uint16_t{0xff})),
                  hn::ShiftLeft<8>(planes[1]));
  }
};

struct Bfloat16Codec : CodecShape<std::uint32_t, float, 2> {
  static HWY_INLINE void unpack(Raw raw, Fold* planes) {
    planes[0] = hn::BitCast(FoldTag(), hn::ShiftLeft<16>(raw));
    planes[1] = hn::BitCast(FoldTag(), hn::And(raw, hn::Set(RawTag(), 0xffff0000u)));
  }
  static HWY_INLINE Raw pack(const Fold* planes) {
    return hn::Or(hn::ShiftRight<16>(rounded(planes[0])),
                  hn::And(rounded(planes[1]), hn::Set(RawTag(), 0xffff0000u)));
  }
  // The bfloat16 in the upper half of each lane, noise in the lower.
  static HWY_INLINE Raw rounded(Fold value) {
    const Raw bits = hn::BitCast(RawTag(), canonical_nan(value));
    const Raw odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(RawTag(), 1u));
    return hn::Add(hn::Add(bits, hn::Set(RawTag(), 0x7fffu)), odd);
  }
};

// widen and narrow of numeric.hpp, for 32 / kBits elements in each 32-bit lane.
template <class Format, int kBits>
struct NarrowCodec : CodecShape<std::uint32_t, float, 32 / kBits> {
  using Shape = CodecShape<std::uint32_t, float, 32 / kBits>;
  using Raw = typename Shape::Raw;
  using Fold = typename Shape::Fold;
  using RawTag = typename Shape::RawTag;
  using FoldTag = typename Shape::FoldTag;

  static HWY_INLINE void unpack(Raw raw, Fold* planes) {
    planes[0] = widened(raw);
    planes[1] = widened(hn::ShiftRight<kBits>(raw));
    if constexpr (kBits == 8) {
      planes[2] = widened(hn::ShiftRight<2 * kBits>(raw));
      planes[3] = widened(hn::ShiftRight<3 * kBits>(raw));
    }
  }
  static HWY_INLINE Raw pack(const Fold* planes) {
    Raw raw = hn::Or(narrowed(planes[0]), hn::ShiftLeft<kBits>(narrowed(planes[1])));
    if constexpr (kBits == 8) {
      raw = hn::Or(raw, hn::ShiftLeft<2 * kBits>(narrowed(planes[2])));
      raw = hn::Or(raw, hn::ShiftLeft<3 * kBits>(narrowed(planes[3])));
    }
    return raw;
  }

 private:
  static HWY_INLINE Raw constant(std::uint32_t bits) { return hn::Set(RawTag(), bits); }
  static HWY_INLINE Fold value(std::uint32_t bits) {
    return hn::BitCast(FoldTag(), constant(bits));
  }
  // Of numbers below 2^31, so that the signed comparison, which every CPU has, will do.
  static HWY_INLINE hn::Mask<RawTag> at_least(Raw v, std::uint32_t limit) {
    using IntTag = hn::Rebind<std::int32_t, RawTag>;
    return hn::RebindMask(
        RawTag(), hn::Gt(hn::BitCast(IntTag(), v), hn::BitCast(IntTag(), constant(limit - 1))));
  }

  // Only the low kBits of each lane count.
  static HWY_INLINE Fold widened(Raw code) {
    const Raw sign =
        hn::ShiftLeft<Format::kSignShift>(hn::And(code, constant(Format::kMagnitudeMask + 1)));
    const Raw magnitude = hn::And(code, constant(Format::kMagnitudeMask));
    const Raw normal =
        hn::Add(hn::ShiftLeft<Format::kDroppedBits>(magnitude), constant(Format::kRebias));
    const Raw subnormal = hn::BitCast(
        RawTag(), hn::Mul(hn::ConvertTo(FoldTag(),
                                        hn::BitCast(hn::Rebind<std::int32_t, RawTag>(), magnitude)),
                          value(Format::kStepBits)));
    Raw bits = hn::IfThenElse(at_least(magnitude, Format::kFirstNormal), normal, subnormal);
    // Infinity and NaN keep their mantissa under float32's largest exponent; e4m3 has only the one
    // NaN.
    constexpr std::uint32_t kSpecial = Format::kInfinite ? kFloat32Infinity : kFloat32QuietNan;
    bits = hn::IfThenElse(at_least(magnitude, Format::kOverflow), hn::Or(bits, constant(kSpecial)),
                          bits);
    return hn::BitCast(FoldTag(), hn::Or(bits, sign));
  }

  static HWY_INLINE Raw narrowed(Fold v) {
    const Raw bits = hn::BitCast(RawTag(), v);
    const Raw magnitude = hn::And(bits, constant(0x7fffffffu));
    const Raw subnormal = hn::Sub(hn::BitCast(RawTag(), hn::Add(hn::BitCast(FoldTag(), magnitude),
                                                                value(Format::kRounderBits))),
                                  constant(Format::kRounderBits));
    constexpr std::uint32_t kBelowHalf = (1u << (Format::kDroppedBits - 1)) - 1;
    const Raw odd = hn::And(hn::ShiftRight<Format::kDroppedBits>(magnitude), constant(1));
    const Raw normal = hn::ShiftRight<Format::kDroppedBits>(
        hn::Add(hn::Add(magnitude, constant(kBelowHalf - Format::kRebias)), odd));
    Raw code = hn::IfThenElse(at_least(magnitude, Format::kFirstNormalBits), normal, subnormal);
    code = hn::Min(code, constant(Format::kOverflow));
    if constexpr (Format::kInfinite) {
      code = hn::IfThenElse(at_least(magnitude, kFloat32Infinity + 1), constant(Format::kQuietNan),
                            code);
    }
    const Raw sign =
        hn::And(hn::ShiftRight<Format::kSignShift>(bits), constant(Format::kMagnitudeMask + 1));
    return hn::Or(code, hn::IfThenZeroElse(hn::Eq(code, constant(Format::kQuietNan)), sign));
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
// F16C widens and narrows as numeric.hpp does, NaN aside, whatever the rounding and flushing modes.
struct Float16Codec : CodecShape<std::uint16_t, float, 2> {
  using HalfTag = hn::Half<RawTag>;
  using Float16Tag = hn::Rebind<hwy::float16_t, FoldTag>;
  static HWY_INLINE void unpack(Raw raw, Fold* planes) {
    planes[0] = widened(hn::LowerHalf(HalfTag(), raw));
    planes[1] = widened(hn::UpperHalf(HalfTag(), raw));
  }
  static HWY_INLINE Raw pack(const Fold* planes) {
    return hn::Combine(RawTag(), narrowed(planes[1]), narrowed(planes[0]));
  }

 private:
  static HWY_INLINE Fold widened(hn::Vec<HalfTag> half) {
    return hn::PromoteTo(FoldTag(), hn::BitCast(Float16Tag(), half));
  }
  static HWY_INLINE hn::Vec<HalfTag> narrowed(Fold v) {
    return hn::BitCast(HalfTag(), hn::DemoteTo(Float16Tag(), canonical_nan(v)));
  }
};
#else
using Float16Codec = NarrowCodec<Float16Format, 16>;
#endif
using Float8E4m3Codec = NarrowCodec<Float8E4m3Format, 8>;
using Float8E5m2Codec = NarrowCodec<Float8E5m2Format, 8>;

}  // namespace HWY_NAMESPACE
}  // namespace treering
HWY_AFTER_NAMESPACE();

#endif  // include guard
