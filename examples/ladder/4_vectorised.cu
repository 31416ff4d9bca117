// Step 4: 16 bytes an access, and several blocks.
//
// New       A channel: block b has a mailbox and slots of its own, and takes rounds b, b+B, b+2B...
//           of B blocks. Blocks need not know of each other. Each thread moves 16 bytes at a time.
// Faster    Memory is kept busy by bytes in flight (bandwidth times latency: 4.8 TB/s x 700 ns is
//           3 MB on an H200). A thread has one load in flight where it had one before, of four
//           times the bytes; and B blocks have B times as many.
// Wastes    A hop costs the same as ever: 256 threads meet at a barrier, one stores the flag, which
//           must wait until all their data has arrived; the reader's one thread sees it, and its
//           256 meet before they load. Some microseconds, 2(n-1) times, and for a vector of a few
//           KiB that is all there is.
//
// All blocks of all ranks must be on the GPU at once, as they wait for each other: the driver
// counts them first.
#include "ladder.cuh"

namespace ladder::vectorised {

inline constexpr std::uint64_t kSliceElems = kSlotBytes / sizeof(float);
inline constexpr std::uint64_t kVecElems = sizeof(Vec16) / sizeof(float);

TR_DEVICE float get(const float* p) { return *p; }
TR_DEVICE void set(float* p, float v) { *p = v; }
TR_DEVICE float sum(float a, float b) { return a + b; }
TR_DEVICE Vec16 get(const Vec16* p) { return load_vec(p); }
TR_DEVICE void set(Vec16* p, Vec16 v) { store_vec(p, v); }
TR_DEVICE Vec16 sum(Vec16 a, Vec16 b) {
  float x[kVecElems], y[kVecElems];
  __builtin_memcpy(x, &a, sizeof a);
  __builtin_memcpy(y, &b, sizeof b);
  for (std::uint64_t j = 0; j < kVecElems; ++j) x[j] += y[j];
  __builtin_memcpy(&a, x, sizeof a);
  return a;
}

// Words first, first + threads, ... of a slice: the loop of step 3, for words of 4 or 16 bytes.
template <class Word>
TR_DEVICE void move_words(const RingStep& step, std::uint64_t first, std::uint64_t end,
                          const float* in, float* out, const std::byte* from, std::byte* to) {
  for (std::uint64_t w = first + thread_id(); w < end; w += block_threads()) {
    const Word* const own = reinterpret_cast<const Word*>(in) + w;
    Word value = get(step.receives ? reinterpret_cast<const Word*>(from) + w : own);
    if (step.receives && step.adds) value = sum(value, get(own));
    if (step.keeps) set(reinterpret_cast<Word*>(out) + w, value);
    if (step.sends) set(reinterpret_cast<Word*>(to) + w, value);
  }
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
        if (thread_id() == 0 && step.receives) wait_message(call, mine, left, received);
        barrier_sync(0, block_threads());
        const float* const in = me.in + part.first;
        float* const out = me.out + part.first;
        const std::byte* const from = slot_of(call, r, channel, received);
        std::byte* const to = slot_of(call, right, channel, sent);
        const std::uint64_t vecs = part.count / kVecElems;  // and up to 3 floats at the very end
        move_words<Vec16>(step, 0, vecs, in, out, from, to);
        move_words<float>(step, vecs * kVecElems, part.count, in, out, from, to);
        barrier_sync(0, block_threads());
        if (step.sends) ++sent;
        if (step.receives) ++received;
        if (thread_id() == 0) {
          if (step.sends) store_release(&call.peers[right].mail[channel].posted, sent);
          if (step.receives) store_release(&call.peers[left].mail[channel].taken, received);
        }
      }
    }
  }
}

inline cudaError_t start(const Call& call, int channels, cudaStream_t stream) {
  return launch(all_reduce, dim3(static_cast<unsigned>(channels)), dim3(kThreads), 0, stream, call);
}

}  // namespace ladder::vectorised
