// The table of vector kernels of each instruction set, and the choice among them at run time.

// SSE4 and wider on x86, NEON on ARM; on other CPUs no vectors. (Highway's SVE and RVV vectors
// cannot lie in arrays, as ours do; a CPU with SVE has NEON.)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/reduce_kernels.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come before what depends on the target.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/reduce.hpp"
#include "engine/reduce_fold-inl.hpp"
#include "engine/reduce_folds.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace treering {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void fold(const ReduceArgs& args, std::size_t first_elem, std::size_t elems) {
  if (args.num_inputs > 1 || is_float(args.type)) return fold_scalars(args, first_elem, elems);
  const std::size_t offset = first_elem * type_bytes(args.type);
  for (int k = 0; k < args.num_outputs; ++k) {
    std::memmove(static_cast<std::uint8_t*>(args.outputs[k]) + offset,
                 static_cast<const std::uint8_t*>(args.inputs[0]) + offset,
                 elems * type_bytes(args.type));
  }
}

#else

using Kernel = void (*)(const ReduceArgs& args, std::size_t first_elem, std::size_t elems);

// sum[n] takes n inputs, none of them scaled; sum[0] and the others any number, scaled or not.
constexpr int kMaxSumInputs = 4;
struct Kernels {
  Kernel sum[kMaxSumInputs + 1];
  Kernel prod;
  Kernel min;
  Kernel max;
};

// A sum of n inputs, specialised where loads and stores take the time: not where elements must be
// taken apart, and not on CPUs of before 2013.
template <class Codec, int n>
constexpr Kernel sum_of() {
  constexpr bool kSpecial = Codec::kPlanes == 1 && HWY_TARGET != HWY_SSE4;
  constexpr int kInputs = kSpecial ? n : 0;
  return Folder<Codec, SumOp, kInputs>::run;
}

// Integers add and multiply the same, signed or not, so that types share kernels; they differ in
// order.
template <class SumCodec, class ProdCodec = SumCodec, class OrderCodec = SumCodec>
constexpr Kernels kernels_of() {
  return {{sum_of<SumCodec, 0>(), sum_of<SumCodec, 1>(), sum_of<SumCodec, 2>(),
           sum_of<SumCodec, 3>(), sum_of<SumCodec, 4>()},
          Folder<ProdCodec, ProdOp, 0>::run,
          Folder<OrderCodec, MinOp, 0>::run,
          Folder<OrderCodec, MaxOp, 0>::run};
}

constexpr Kernels kKernels[kNumTypes] = {
    kernels_of<PlainCodec<std::uint8_t>, ByteProductCodec, PlainCodec<std::int8_t>>(),
    kernels_of<PlainCodec<std::uint8_t>, ByteProductCodec>(),
    kernels_of<PlainCodec<std::uint32_t>, PlainCodec<std::uint32_t>, PlainCodec<std::int32_t>>(),
    kernels_of<PlainCodec<std::uint32_t>>(),
    kernels_of<PlainCodec<std::uint64_t>, PlainCodec<std::uint64_t>, PlainCodec<std::int64_t>>(),
    kernels_of<PlainCodec<std::uint64_t>>(),
    kernels_of<Float16Codec>(),
    kernels_of<Bfloat16Codec>(),
    kernels_of<PlainCodec<float>>(),
    kernels_of<PlainCodec<double>>(),
    kernels_of<Float8E4m3Codec>(),
    kernels_of<Float8E5m2Codec>(),
};

void fold(const ReduceArgs& args, std::size_t first_elem, std::size_t elems) {
  const Kernels& kernels = kKernels[static_cast<int>(args.type)];
  switch (args.op) {
    case RedOp::kProd:
      return kernels.prod(args, first_elem, elems);
    case RedOp::kMin:
      return kernels.min(args, first_elem, elems);
    case RedOp::kMax:
      return kernels.max(args, first_elem, elems);
    default:
      break;
  }
  const bool special = args.num_inputs <= kMaxSumInputs && args.scaled_input < 0;
  kernels.sum[special ? args.num_inputs : 0](args, first_elem, elems);
}

#endif  // targets

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace treering
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace treering {

HWY_EXPORT(fold);
HWY_EXPORT(target_name);

void fold_vectors(const ReduceArgs& args, std::size_t first_elem, std::size_t elems) {
  HWY_DYNAMIC_DISPATCH(fold)(args, first_elem, elems);
}

const char* reduce_target_name() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace treering
#endif  // HWY_ONCE
