// Simple: a slot is plain memory, and a tail says that it is full. Full bandwidth; a hop costs a
// release by one thread, which must come after the stores of all of them.
#pragma once

#include "algos/cuda/fold.cuh"
#include "algos/cuda/wait.cuh"

namespace treering::cuda {

struct Simple {
  static constexpr DeviceProtocol kId = DeviceProtocol::kSimple;
  static constexpr bool kHasTail = true;
  TR_HD static constexpr std::size_t data_bytes(std::size_t slot_bytes) { return slot_bytes; }

  // Packs of 16 bytes; where an operand is not aligned to that, element by element.
  struct Access {
    static constexpr std::size_t kPackBytes = sizeof(Vec16);
    int thread, threads;
    bool aligned;

    TR_DEVICE std::uint64_t packs(std::uint64_t bytes) const {
      return (bytes + kPackBytes - 1) / kPackBytes;
    }
    TR_DEVICE std::uint64_t first() const { return thread; }
    TR_DEVICE std::uint64_t stride() const { return threads; }

    template <class Stored, int kElems>
    TR_DEVICE void load(const FoldArgs::Operand& from, std::uint64_t pack, std::uint64_t bytes,
                        Stored (&stored)[kElems]) const {
      const std::byte* at = from.address + pack * kPackBytes;
      if (aligned && (pack + 1) * kPackBytes <= bytes) {
        const Vec16 v = load_vec(reinterpret_cast<const Vec16*>(at));
        __builtin_memcpy(stored, &v, kPackBytes);
      } else {
        load_elements(at, bytes - pack * kPackBytes, stored);
      }
    }
    template <class Stored, int kElems>
    TR_DEVICE void store(const FoldArgs::Operand& to, std::uint64_t pack, std::uint64_t bytes,
                         const Stored (&stored)[kElems]) const {
      std::byte* at = to.address + pack * kPackBytes;
      if (aligned && (pack + 1) * kPackBytes <= bytes) {
        Vec16 v;
        __builtin_memcpy(&v, stored, kPackBytes);
        store_vec(reinterpret_cast<Vec16*>(at), v);
      } else {
        store_elements(at, bytes - pack * kPackBytes, stored);
      }
    }
  };

  TR_DEVICE static Access access(const FoldArgs& args, const DeviceCall&, std::int32_t*) {
    std::uintptr_t low_bits = 0;
    for (int k = 0; k < args.num_inputs; ++k) {
      low_bits |= reinterpret_cast<std::uintptr_t>(args.inputs[k].address);
    }
    for (int k = 0; k < args.num_outputs; ++k) {
      low_bits |= reinterpret_cast<std::uintptr_t>(args.outputs[k].address);
    }
    return {thread_id(), block_threads(), low_bits % sizeof(Vec16) == 0};
  }
};

}  // namespace treering::cuda
