// The reduction of a slice by the threads of a block: fold n inputs, store the result to m outputs.
// The rules are those of the host (core/elements.hpp, engine/reduce.hpp), to the bit.
//
// Work is dealt out in packs of a few bytes, one to a thread in turn; a pack stays in registers
// between the loads of its inputs and the stores of its outputs. How a pack is loaded and stored is
// the protocol's business: the template parameter Access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "algos/cuda/ptx_memory.cuh"
#include "core/device_link.hpp"
#include "core/elements.hpp"

namespace treering::cuda {

TR_DEVICE constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return (a + b - 1) / b;
}

// The pack at `offset` of plain memory that ends after `bytes`, element by element: one that is not
// full, or not aligned. What lies beyond the end is zero, and not stored.
template <class Stored, int kElems>
TR_DEVICE void load_elements(const std::byte* from, std::uint64_t offset, std::uint64_t bytes,
                             Stored (&stored)[kElems]) {
#pragma unroll
  for (int i = 0; i < kElems; ++i) {
    const std::uint64_t at = offset + i * sizeof(Stored);
    stored[i] = at < bytes ? *reinterpret_cast<const Stored*>(from + at) : Stored{};
  }
}
template <class Stored, int kElems>
TR_DEVICE void store_elements(std::byte* to, std::uint64_t offset, std::uint64_t bytes,
                              const Stored (&stored)[kElems]) {
#pragma unroll
  for (int i = 0; i < kElems; ++i) {
    const std::uint64_t at = offset + i * sizeof(Stored);
    if (at < bytes) *reinterpret_cast<Stored*>(to + at) = stored[i];
  }
}

// A pack of 16 bytes, at once where it is full and `aligned`.
template <class Stored, int kElems>
TR_DEVICE void load_plain(const std::byte* from, std::uint64_t offset, std::uint64_t bytes,
                          bool aligned, Stored (&stored)[kElems]) {
  if (aligned && offset + sizeof(Vec16) <= bytes) {
    const Vec16 v = load_vec(reinterpret_cast<const Vec16*>(from + offset));
    __builtin_memcpy(stored, &v, sizeof v);
  } else {
    load_elements(from, offset, bytes, stored);
  }
}
template <class Stored, int kElems>
TR_DEVICE void store_plain(std::byte* to, std::uint64_t offset, std::uint64_t bytes, bool aligned,
                           const Stored (&stored)[kElems]) {
  if (aligned && offset + sizeof(Vec16) <= bytes) {
    Vec16 v;
    __builtin_memcpy(&v, stored, sizeof v);
    store_vec(reinterpret_cast<Vec16*>(to + offset), v);
  } else {
    store_elements(to, offset, bytes, stored);
  }
}

// What a slice's fold is, in shared memory; the same for all threads of the block.
struct FoldArgs {
  // Of the caller's memory or of a slot. flag: of a slot's lines (LL, LL128); 0: plain memory.
  struct Operand {
    std::byte* address;
    std::uint64_t flag;
  };
  Operand inputs[kMaxDeviceRanks + 1];
  Operand outputs[kMaxDeviceRanks + 1];
  std::int32_t num_inputs;
  std::int32_t num_outputs;
  std::uint64_t bytes;
  std::int32_t scaled_input;  // -1: none
  std::uint32_t divisor;      // 1: none
};

// Do all operands begin at a multiple of `bytes`, a power of two?
TR_DEVICE bool are_aligned(const FoldArgs& args, std::uintptr_t bytes) {
  std::uintptr_t low_bits = 0;
  for (int k = 0; k < args.num_inputs; ++k) {
    low_bits |= reinterpret_cast<std::uintptr_t>(args.inputs[k].address);
  }
  for (int k = 0; k < args.num_outputs; ++k) {
    low_bits |= reinterpret_cast<std::uintptr_t>(args.outputs[k].address);
  }
  return (low_bits & (bytes - 1)) == 0;
}

// kPackBytes bytes of a vector of Elements.
template <class Element, std::size_t kPackBytes>
struct Pack {
  using Stored = typename Element::Stored;
  using Folded = typename Element::Folded;
  static constexpr int kElems = kPackBytes / sizeof(Stored);

  Folded value[kElems];

  TR_DEVICE static Pack from(const Stored (&stored)[kElems]) {
    Pack p;
#pragma unroll
    for (int i = 0; i < kElems; ++i) p.value[i] = Element::load(stored[i]);
    return p;
  }
  TR_DEVICE void to(Stored (&stored)[kElems]) const {
#pragma unroll
    for (int i = 0; i < kElems; ++i) stored[i] = Element::store(value[i]);
  }
  // Rounded to the element type: what an owner scales has the same bits wherever it is folded.
  TR_DEVICE void scale(double factor) {
    if constexpr (std::is_floating_point_v<Folded>) {
#pragma unroll
      for (int i = 0; i < kElems; ++i) {
        value[i] = Element::load(Element::store(value[i] * static_cast<Folded>(factor)));
      }
    }
  }
  template <RedOp op>
  TR_DEVICE void fold(const Pack& in) {
#pragma unroll
    for (int i = 0; i < kElems; ++i) value[i] = combine<op>(value[i], in.value[i]);
  }
  TR_DEVICE void fold(const Pack& in, RedOp op) {
    switch (op) {
      case RedOp::kProd:
        return fold<RedOp::kProd>(in);
      case RedOp::kMin:
        return fold<RedOp::kMin>(in);
      case RedOp::kMax:
        return fold<RedOp::kMax>(in);
      default:
        return fold<RedOp::kSum>(in);
    }
  }
  TR_DEVICE void divide(std::uint32_t divisor) {
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
      if constexpr (std::is_floating_point_v<Folded>) {
        value[i] *= static_cast<Folded>(1.0 / divisor);
      } else {
        using Wide = std::conditional_t<std::is_signed_v<Folded>, std::int64_t, std::uint64_t>;
        value[i] = static_cast<Folded>(static_cast<Wide>(value[i]) / static_cast<Wide>(divisor));
      }
    }
  }
};

// Access: kPackBytes; packs(bytes), how many are dealt out, one thread after the other;
// load(operand, pack number, bytes, Stored (&)[kElems]); store.
template <class Access, class Element>
TR_DEVICE void fold_packs(Access access, const FoldArgs& args, RedOp op, double factor) {
  using P = Pack<Element, Access::kPackBytes>;
  const std::uint64_t packs = access.packs(args.bytes);
  for (std::uint64_t i = thread_id(); i < packs; i += block_threads()) {
    typename Element::Stored stored[P::kElems];
    const auto input = [&](int k) {
      access.load(args.inputs[k], i, args.bytes, stored);
      P pack = P::from(stored);
      if (k == args.scaled_input) pack.scale(factor);
      return pack;
    };
    P total = input(0);
    for (int k = 1; k < args.num_inputs; ++k) total.fold(input(k), op);
    if (args.divisor != 1) total.divide(args.divisor);
    total.to(stored);
    for (int k = 0; k < args.num_outputs; ++k) {
      access.store(args.outputs[k], i, args.bytes, stored);
    }
  }
}

// A move: the bytes as they are.
template <class Access>
TR_DEVICE void move_packs(Access access, const FoldArgs& args) {
  const std::uint64_t packs = access.packs(args.bytes);
  for (std::uint64_t i = thread_id(); i < packs; i += block_threads()) {
    std::uint8_t stored[Access::kPackBytes];
    access.load(args.inputs[0], i, args.bytes, stored);
    for (int k = 0; k < args.num_outputs; ++k) {
      access.store(args.outputs[k], i, args.bytes, stored);
    }
  }
}

// The type is switched here, once a slice; the operator once a pack.
template <class Access>
TR_DEVICE void fold(Access access, const FoldArgs& args, Type type, RedOp op, double factor) {
  if (op == RedOp::kNone) return move_packs(access, args);
  with_element(
      type, [&]<class Element>(Element) { fold_packs<Access, Element>(access, args, op, factor); });
}

}  // namespace treering::cuda
