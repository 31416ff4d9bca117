// The loop over the elements of a reduction: compiled once per instruction set, by
// reduce_kernels.cpp.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/reduce.hpp"
#include "engine/reduce_codecs-inl.hpp"
#include "hwy/highway.h"

#if defined(TREERING_ENGINE_REDUCE_FOLD_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TREERING_ENGINE_REDUCE_FOLD_INL_HPP
#undef TREERING_ENGINE_REDUCE_FOLD_INL_HPP
#else
#define TREERING_ENGINE_REDUCE_FOLD_INL_HPP
#endif

HWY_BEFORE_NAMESPACE();
namespace treering {
namespace HWY_NAMESPACE {

// p may have any alignment.
template <class D>
HWY_INLINE hn::Vec<D> load_raw(D d, const std::uint8_t* p) {
  return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(p));
}

template <class D>
HWY_INLINE void store_raw(hn::Vec<D> v, D d, std::uint8_t* p) {
  hn::StoreU(v, d, reinterpret_cast<hn::TFromD<D>*>(p));
}

struct SumOp {
  template <class V>
  static HWY_INLINE V combine(V a, V b) {
    return hn::Add(a, b);
  }
};

struct ProdOp {
  template <class V>
  static HWY_INLINE V combine(V a, V b) {
    return hn::Mul(a, b);
  }
};

// CPUs disagree about NaN and zeros in min and max, so floats are compared and selected. Where a
// and b are equal their bits are, but for zeros: then `or` keeps a minus and `and` drops it.
struct MinOp {
  template <class V>
  static HWY_INLINE V combine(V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      const V smaller = hn::IfThenElse(hn::Lt(a, b), a, b);  // b, if it is NaN
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), smaller));
    } else {
      return hn::Min(a, b);
    }
  }
};

struct MaxOp {
  template <class V>
  static HWY_INLINE V combine(V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      const V larger = hn::IfThenElse(hn::Gt(a, b), a, b);
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), larger));
    } else {
      return hn::Max(a, b);
    }
  }
};

// kInputs: the number of inputs, none of them scaled; or 0: what the arguments say.
template <class Codec, class Op, int kInputs>
class Folder {
 public:
  static void run(const ReduceArgs& args, std::size_t first_elem, std::size_t elems) {
    constexpr std::size_t kElementBytes = Codec::kElementBytes;
    Folder(args).fold_all(first_elem * kElementBytes, (first_elem + elems) * kElementBytes);
  }

 private:
  using Raw = typename Codec::Raw;
  using RawTag = typename Codec::RawTag;
  using Fold = typename Codec::Fold;
  using FoldTag = typename Codec::FoldTag;
  using Folded = typename Codec::Folded;
  static constexpr int kPlanes = Codec::kPlanes;
  static constexpr std::size_t kStepBytes = Codec::kStepBytes;
  // Sums, in which nearly all time is spent, work on four registers at once.
  static constexpr int kUnrolled = std::is_same_v<Op, SumOp> && kPlanes < 4 ? 4 / kPlanes : 1;

  explicit HWY_INLINE Folder(const ReduceArgs& args) : args_(args) {
    for (int k = 0; k < kInputs; ++k) inputs_[k] = static_cast<const std::uint8_t*>(args.inputs[k]);
    if constexpr (hwy::IsFloat<Folded>()) scale_out_ = static_cast<Folded>(1.0 / args.divisor);
  }

  HWY_INLINE void fold_all(std::size_t at, std::size_t end) {
    if (args_.streaming_outputs != 0) {
      const std::size_t head_bytes = align_streams(at, end);
      if (head_bytes != 0) fold_steps<1>(at, head_bytes);
      at += head_bytes;
    }
    if constexpr (kUnrolled > 1) {
      constexpr std::size_t kLoopBytes = kUnrolled * kStepBytes;
      for (; end - at >= kLoopBytes; at += kLoopBytes) fold_steps<kUnrolled>(at, kLoopBytes);
    }
    for (; at < end; at += kStepBytes) fold_steps<1>(at, std::min(kStepBytes, end - at));
  }

  // Returns the bytes, less than a step, after which the first streaming output that can be is
  // aligned. The streaming outputs that are aligned there are streamed, the others stored.
  HWY_INLINE std::size_t align_streams(std::size_t at, std::size_t end) {
    std::size_t head_bytes = 0;
    for (int output = 0; output < std::min(args_.num_outputs, 64); ++output) {
      if (((args_.streaming_outputs >> output) & 1) == 0) continue;
      const auto address = reinterpret_cast<std::uintptr_t>(args_.outputs[output]) + at;
      const std::size_t bytes_to_step = (0 - address) % kStepBytes;
      if (streams_ == 0) head_bytes = bytes_to_step;
      if (bytes_to_step == head_bytes && head_bytes % Codec::kElementBytes == 0 &&
          head_bytes < end - at) {
        streams_ |= std::uint64_t{1} << output;
      }
    }
    return streams_ == 0 ? 0 : head_bytes;
  }

  HWY_INLINE int num_inputs() const { return kInputs != 0 ? kInputs : args_.num_inputs; }
  HWY_INLINE const std::uint8_t* input(int k) const {
    return kInputs != 0 ? inputs_[k] : static_cast<const std::uint8_t*>(args_.inputs[k]);
  }

  // `bytes` from byte `at` on: kSteps steps, or part of one, which goes through a padded copy. All
  // inputs are read before an output is written: it may be one of them.
  template <int kSteps>
  HWY_INLINE void fold_steps(std::size_t at, std::size_t bytes) {
    Fold total[kSteps * kPlanes];
    load<kSteps>(0, at, bytes, total);
    for (int k = 1; k < num_inputs(); ++k) {
      Fold next[kSteps * kPlanes];
      load<kSteps>(k, at, bytes, next);
      for (int i = 0; i < kSteps * kPlanes; ++i) total[i] = Op::combine(total[i], next[i]);
    }
    scale_result<kSteps>(total);
    Raw raw[kSteps];
    for (int step = 0; step < kSteps; ++step) raw[step] = Codec::pack(total + step * kPlanes);

    for (int k = 0; k < args_.num_outputs; ++k) {
      std::uint8_t* p = static_cast<std::uint8_t*>(args_.outputs[k]) + at;
      if (bytes < kSteps * kStepBytes) {
        alignas(64) std::uint8_t padded[kStepBytes];
        store_raw(raw[0], RawTag(), padded);
        std::memcpy(p, padded, bytes);
      } else {
        store<kSteps>(raw, p, k < 64 && ((streams_ >> k) & 1) != 0);
      }
    }
  }

  template <int kSteps>
  HWY_INLINE void load(int k, std::size_t at, std::size_t bytes, Fold* planes) const {
    const std::uint8_t* p = input(k) + at;
    alignas(64) std::uint8_t padded[kStepBytes];
    if (bytes < kSteps * kStepBytes) {
      std::memset(padded, 0, kStepBytes);
      std::memcpy(padded, p, bytes);
      p = padded;
    }
    for (int step = 0; step < kSteps; ++step) {
      Codec::unpack(load_raw(RawTag(), p + step * kStepBytes), planes + step * kPlanes);
    }
    if constexpr (kInputs == 0 && hwy::IsFloat<Folded>()) {
      if (k == args_.scaled_input) {
        multiply<kSteps>(planes, static_cast<Folded>(args_.scale_in));
        for (int i = 0; i < kSteps * kPlanes; i += kPlanes) {  // rounded to the element type
          Codec::unpack(Codec::pack(planes + i), planes + i);
        }
      }
    }
  }

  template <int kSteps>
  HWY_INLINE void scale_result(Fold* planes) const {
    if constexpr (hwy::IsFloat<Folded>()) {
      if (scale_out_ != 1) multiply<kSteps>(planes, scale_out_);
    }
  }

  template <int kSteps>
  static HWY_INLINE void multiply(Fold* planes, Folded factor) {
    const Fold factors = hn::Set(FoldTag(), factor);
    for (int i = 0; i < kSteps * kPlanes; ++i) planes[i] = hn::Mul(planes[i], factors);
  }

  template <int kSteps>
  static HWY_INLINE void store(const Raw* raw, std::uint8_t* p, bool streaming) {
    for (int step = 0; step < kSteps; ++step, p += kStepBytes) {
      if (streaming) {
        hn::Stream(raw[step], RawTag(), reinterpret_cast<hn::TFromD<RawTag>*>(p));
      } else {
        store_raw(raw[step], RawTag(), p);
      }
    }
  }

  const ReduceArgs& args_;
  const std::uint8_t* inputs_[kInputs != 0 ? kInputs : 1] = {};
  Folded scale_out_ = 1;
  std::uint64_t streams_ = 0;  // bit i: output i takes streaming stores
};

}  // namespace HWY_NAMESPACE
}  // namespace treering
HWY_AFTER_NAMESPACE();

#endif  // include guard
