// Step 5: LL, "low latency" (after NCCL): the flag travels with the data.
//
// New       A line of 16 bytes is two floats, each followed by a flag, the message's number + 1. A
//           store of 8 bytes arrives whole, so whoever sees the flag has the float beside it. There
//           is no `posted`: nothing has to be in order with anything.
// Faster    A hop is one store and one load. No barrier between data and flag, no release that
// waits
//           until all stores have arrived, no thread that polls for the others: each thread polls
//           for its own line, adds, and sends it on, at once.
// Wastes    Half of the bytes are flags, so half of the bandwidth: for short vectors only. NCCL's
//           LL128 has 8 bytes of flag in 128, where a link keeps such a line whole. Room is still
//           asked for by one thread, and there is a barrier before `taken`; but four slots ahead,
//           that is seldom waited for.
//
// A slot is used again every four messages, with a new number; so what the last one left is never
// believed. (32 bits: for 2^32 messages. The library's ll.cuh says what it does then.)
#include "ladder.cuh"

namespace ladder::ll {

inline constexpr std::uint64_t kLineElems = 2;
inline constexpr std::uint64_t kSliceElems = kSlotBytes / sizeof(LlLine) * kLineElems;

struct Pair {
  float x, y;
};
// The last line of a vector may have one float only.
TR_DEVICE Pair get(const float* p, bool both) { return {p[0], both ? p[1] : 0}; }
TR_DEVICE Pair receive(const Call& call, const LlLine* line, int left, std::uint64_t number) {
  std::uint64_t bits = 0;
  wait_until(call, WaitFor::kMessage, left, number,
             [&] { return ll_load(line, static_cast<std::uint32_t>(number + 1), &bits); });
  Pair pair;
  __builtin_memcpy(&pair, &bits, sizeof pair);
  return pair;
}
TR_DEVICE void send(LlLine* line, Pair pair, std::uint64_t number) {
  std::uint64_t bits;
  __builtin_memcpy(&bits, &pair, sizeof bits);
  ll_store(line, bits, static_cast<std::uint32_t>(number + 1));
}

TR_KERNEL(kThreads)
all_reduce(TR_PARAMETER Call call) {
  const int n = call.size, r = call.rank, left = mod(r - 1, n), right = mod(r + 1, n);
  const int channel = block_id();
  const Peer& me = call.peers[r];
  Mailbox& mine = me.mail[channel];
  std::uint64_t sent = 0, received = 0;

  const std::uint64_t rounds = rounds_of(call, kSliceElems);
  for (std::uint64_t round = channel; round < rounds; round += grid_blocks()) {
    for (int i = 0; i < 2 * n - 1; ++i) {
      const RingStep step = ring_step(i, r, n);
      for (std::uint64_t k = 0; k < kSlicesPerRound; ++k) {
        const Range part =
            part_of(chunk_of(call, step.chunk), round * kSlicesPerRound + k, kSliceElems);
        if (part.count == 0) break;

        if (thread_id() == 0 && step.sends) wait_room(call, mine, right, sent);
        barrier_sync(0, block_threads());
        const auto* const from =
            reinterpret_cast<const LlLine*>(slot_of(call, r, channel, received));
        auto* const to = reinterpret_cast<LlLine*>(slot_of(call, right, channel, sent));
        for (std::uint64_t e = kLineElems * thread_id(); e < part.count;
             e += kLineElems * block_threads()) {
          const bool both = e + 1 < part.count;
          Pair value{}, own{};
          if (step.adds) own = get(me.in + part.first + e, both);
          if (step.receives) value = receive(call, from + e / kLineElems, left, received);
          if (step.adds) value = {value.x + own.x, value.y + own.y};
          if (step.sends) send(to + e / kLineElems, value, sent);
          if (step.keeps) me.out[part.first + e] = value.x;
          if (step.keeps && both) me.out[part.first + e + 1] = value.y;
        }
        if (step.sends) ++sent;
        if (!step.receives) continue;
        ++received;
        barrier_sync(0, block_threads());  // all have read
        if (thread_id() == 0) store_release(&call.peers[left].mail[channel].taken, received);
      }
    }
  }
}

inline cudaError_t start(const Call& call, int channels, cudaStream_t stream) {
  return launch(all_reduce, dim3(static_cast<unsigned>(channels)), dim3(kThreads), 0, stream, call);
}

}  // namespace ladder::ll
