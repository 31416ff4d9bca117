// LL128 (after NCCL's protocol): lines of 128 bytes that arrive whole, 120 of data and a flag of 8.
// Like LL it needs no tail, no release and no wait of one thread for another, but only one byte in
// 16 is a flag. For vectors of medium length.
//
// Eight threads write a line, in one instruction, with a store of 16 bytes each. It is legal only
// where such a line is never torn: in the memory of the same GPU and over NVLink, from sm_70 on.
// Over PCIe it may be. Each communicator asks its links (DeviceLinks::why_no_ll128).
//
// The flag is the message's number + 1, all 64 bits of it: unlike LL's it never comes back, and 0,
// which memory has that was never written, is no flag. So nothing behind a message is covered.
//
// A warp moves a row: four lines with 480 bytes of data, 30 packs of 16 bytes. The lanes that write
// flags (7, 15, 23, 31) have room for half a pack in their line. So two of them hold the last two
// packs, and hand the second halves to the other two:
//
//   lane             0-6   7        8-14   15       16-22   23       24-30   31
//   holds the pack   0-6   28       7-13   29       14-20   none     21-27   none
//   has in its line  it    half of  it     half of  it      half of  it      half of
//                          28             29                28              29
//
// (NCCL's lanes with flags keep the half for their next row. This way a row stands alone.) All that
// is loaded from and stored to the caller's memory is 16 bytes, aligned if the buffer is.
#pragma once

#include "algos/cuda/fold.cuh"
#include "algos/cuda/wait.cuh"

namespace treering::cuda {

struct LL128 {
  static constexpr DeviceProtocol kId = DeviceProtocol::kLL128;
  static constexpr bool kHasTail = false;
  TR_DEVICE static void cover(const FoldArgs::Operand&, std::uint64_t, std::uint32_t) {}

  // The lanes of a warp always have packs of one row, and what depends on the pack but its place is
  // the same for all of them: they call together.
  struct Access {
    static constexpr std::size_t kPackBytes = sizeof(Vec16);
    static constexpr int kPacksOfRow = kLl128RowData / kPackBytes;
    static_assert(kPacksOfRow == 30 && kLl128RowBytes == kWarpSize * sizeof(Vec16));
    bool aligned;
    LineWait wait;

    TR_DEVICE static std::uint64_t packs(std::uint64_t bytes) {
      return ceil_div(bytes, kLl128RowData) * kWarpSize;
    }
    // Where the pack begins; beyond the end of every message for lanes without one.
    TR_DEVICE static std::uint64_t offset(std::uint64_t pack) {
      const int lane = static_cast<int>(pack % kWarpSize), line = lane / 8;
      const bool has_flag = lane % 8 == 7;
      if (has_flag && is_second(lane)) return std::uint64_t{1} << 62;
      const int place = has_flag ? kPacksOfRow - 2 + line : lane - line;
      return (pack / kWarpSize * kPacksOfRow + static_cast<std::uint64_t>(place)) * kPackBytes;
    }
    // Two lanes with flags, so far apart, share a pack; the second one has the second half.
    static constexpr int kApart = kWarpSize / 2;
    TR_DEVICE static bool is_second(int lane) { return lane >= kApart; }

    template <class Stored, int kElems>
    TR_DEVICE void load(const FoldArgs::Operand& from, std::uint64_t pack, std::uint64_t bytes,
                        Stored (&stored)[kElems]) {
      if (from.flag == 0) {
        return load_plain(from.address, offset(pack), bytes, aligned, stored);
      }
      const auto* row = reinterpret_cast<const Vec16*>(from.address) + pack / kWarpSize * kWarpSize;
      if (!wait.gave_up) {
        const auto arrived = [&] { return ll128_arrived(row, from.flag); };
        wait.ended(wait_until<WholeWarp>(*wait.context, arrived), from);
      }
      Vec16 v = ll128_load(row);
      const std::uint64_t half = shuffle_xor(kFullWarp, v.lo, kApart);
      if (ll128_has_flag()) v.hi = half;  // (what lanes without a pack get, nobody uses)
      __builtin_memcpy(stored, &v, kPackBytes);
    }
    template <class Stored, int kElems>
    TR_DEVICE void store(const FoldArgs::Operand& to, std::uint64_t pack, std::uint64_t bytes,
                         const Stored (&stored)[kElems]) const {
      if (to.flag == 0) return store_plain(to.address, offset(pack), bytes, aligned, stored);
      auto* const row = reinterpret_cast<Vec16*>(to.address) + pack / kWarpSize * kWarpSize;
      Vec16 v;
      __builtin_memcpy(&v, stored, kPackBytes);
      const std::uint64_t half = shuffle_xor(kFullWarp, v.hi, kApart);
      if (ll128_has_flag() && is_second(lane_id())) v.lo = half;
      ll128_store(row, v, to.flag);
    }
  };

  TR_DEVICE static Access access(const FoldArgs& args, const DeviceContext& context,
                                 std::int32_t* failed) {
    return {are_aligned(args, sizeof(Vec16)), {&context, &args, failed}};
  }
};

}  // namespace treering::cuda
