// LL ("low latency", after NCCL's protocol): every 8-byte store carries 4 bytes of data and a flag,
// so a message needs no tail, no release and no wait of one thread for another. Half of the
// bandwidth; for short messages.
//
// The flag is the message's number + 1, cut to 32 bits. A line that was last written 2^32 messages
// ago would be believed, so a writer fills whole slots, whatever the length, once in every 2^31
// messages (covers_slot).
#pragma once

#include "algos/cuda/fault.cuh"
#include "algos/cuda/fold.cuh"
#include "algos/cuda/wait.cuh"

namespace treering::cuda {

struct LL {
  static constexpr DeviceProtocol kId = DeviceProtocol::kLL;
  static constexpr bool kHasTail = false;
  TR_HD static constexpr bool covers_slot(std::uint64_t number) {
    return number % (std::uint64_t{1} << 31) < kDeviceSlots;
  }
  // The lines behind a message of `bytes`. Nobody reads them: they only must not be older. The
  // first messages of a link do it too: memory that was never written has the flag 0, that of 2^32
  // - 1.
  TR_DEVICE static void cover(const FoldArgs::Operand& slot, std::uint64_t bytes,
                              std::uint32_t slot_bytes) {
    if (kFault == Fault::kNoCover || !covers_slot(slot.flag - 1)) return;
    const std::uint64_t lines = slot_bytes / sizeof(LlLine);
    for (std::uint64_t i = Access::packs(bytes) + thread_id(); i < lines; i += block_threads()) {
      ll_store(reinterpret_cast<LlLine*>(slot.address) + i, 0,
               static_cast<std::uint32_t>(slot.flag));
    }
  }

  // Packs of 8 bytes: a line of two pairs of data and flag.
  struct Access {
    static constexpr std::size_t kPackBytes = 8;
    LineWait wait;

    TR_DEVICE static std::uint64_t packs(std::uint64_t bytes) {
      return ceil_div(bytes, kPackBytes);
    }
    template <class Stored, int kElems>
    TR_DEVICE void load(const FoldArgs::Operand& from, std::uint64_t pack, std::uint64_t bytes,
                        Stored (&stored)[kElems]) {
      if (from.flag == 0) return load_elements(from.address, pack * kPackBytes, bytes, stored);
      const auto* line = reinterpret_cast<const LlLine*>(from.address) + pack;
      const auto flag = static_cast<std::uint32_t>(from.flag);
      std::uint64_t data = 0;
      if (!wait.gave_up) {
        wait.ended(wait_until(*wait.context, [&] { return ll_load(line, flag, &data); }), from);
      }
      __builtin_memcpy(stored, &data, kPackBytes);
    }
    template <class Stored, int kElems>
    TR_DEVICE void store(const FoldArgs::Operand& to, std::uint64_t pack, std::uint64_t bytes,
                         const Stored (&stored)[kElems]) const {
      if (to.flag == 0) return store_elements(to.address, pack * kPackBytes, bytes, stored);
      std::uint64_t data;
      __builtin_memcpy(&data, stored, kPackBytes);
      ll_store(reinterpret_cast<LlLine*>(to.address) + pack, data,
               static_cast<std::uint32_t>(to.flag));
    }
  };

  TR_DEVICE static Access access(const FoldArgs& args, const DeviceContext& context,
                                 std::int32_t* failed) {
    return {{&context, &args, failed}};
  }
};

}  // namespace treering::cuda
