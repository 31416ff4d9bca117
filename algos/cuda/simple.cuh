// Simple: a slot is plain memory, and a tail says that it is full. Full bandwidth; a hop costs a
// release by one thread, which must come after the stores of all of them.
#pragma once

#include "algos/cuda/fold.cuh"
#include "algos/cuda/wait.cuh"

namespace treering::cuda {

struct Simple {
  static constexpr DeviceProtocol kId = DeviceProtocol::kSimple;
  static constexpr bool kHasTail = true;

  // Packs of 16 bytes; where an operand is not aligned to that, element by element.
  struct Access {
    static constexpr std::size_t kPackBytes = sizeof(Vec16);
    bool aligned;

    TR_DEVICE static std::uint64_t packs(std::uint64_t bytes) {
      return ceil_div(bytes, kPackBytes);
    }
    template <class Stored, int kElems>
    TR_DEVICE void load(const FoldArgs::Operand& from, std::uint64_t pack, std::uint64_t bytes,
                        Stored (&stored)[kElems]) const {
      load_plain(from.address, pack * kPackBytes, bytes, aligned, stored);
    }
    template <class Stored, int kElems>
    TR_DEVICE void store(const FoldArgs::Operand& to, std::uint64_t pack, std::uint64_t bytes,
                         const Stored (&stored)[kElems]) const {
      store_plain(to.address, pack * kPackBytes, bytes, aligned, stored);
    }
  };

  TR_DEVICE static Access access(const FoldArgs& args, const DeviceContext&, std::int32_t*) {
    return {are_aligned(args, sizeof(Vec16))};
  }
};

}  // namespace treering::cuda
