// Step 2: a ring. The vector is cut into n chunks, and every rank works all the time.
//
// New       Each rank sends to its right neighbour and receives from its left one. In n-1 steps
//           (reduce-scatter) chunk r comes home to rank r, one rank's input richer at each hop; in
//           n-1 more (all-gather) the sums go around. A message lies in a slot, a place in the
//           reader's memory that is used again; so there are two flags: `posted`, the slot is
//           full, and `taken`, it is free again.
// Faster    Each rank sends 2(n-1)/n S, less than 2 S however many ranks there are: no rank is the
//           bottleneck. (Patarasuk and Yuan 2009: no all-reduce sends less.)
// Wastes    One thing happens at a time: a whole chunk is copied, then the flag, then the neighbour
//           starts to read. While it reads, there is no slot to write to. What arrives is added and
//           stored in `out`, only to be loaded from there and sent on: memory is crossed twice.
#include "ladder.cuh"

namespace ladder::ring {

TR_KERNEL(kThreads)
all_reduce(TR_PARAMETER Call call) {
  const int n = call.size, r = call.rank, left = mod(r - 1, n), right = mod(r + 1, n);
  const Peer& me = call.peers[r];
  Mailbox& mine = me.mail[0];
  // One slot, as large as a chunk.
  const float* const arrived = reinterpret_cast<const float*>(me.slots);
  float* const slot = reinterpret_cast<float*>(call.peers[right].slots);

  for (int i = 0; i < 2 * (n - 1); ++i) {
    const auto message = static_cast<std::uint64_t>(i);  // one a step

    // Send: my input first, then always what the step before has left in `out`.
    const Range give = chunk_of(call, mod(r - 1 - i, n));
    const float* const source = (i == 0 ? me.in : me.out) + give.first;
    if (thread_id() == 0) wait_room(call, mine, right, message, 1);
    barrier_sync(0, block_threads());
    for (std::uint64_t e = thread_id(); e < give.count; e += block_threads()) slot[e] = source[e];
    barrier_sync(0, block_threads());
    if (thread_id() == 0) {
      store_release(&call.peers[right].mail[0].posted, message + 1);
      wait_message(call, mine, left, message);
    }
    barrier_sync(0, block_threads());

    // Receive: partial sums in the first half, results in the second.
    const Range take = chunk_of(call, mod(r - 2 - i, n));
    const bool adds = i < n - 1;
    for (std::uint64_t e = thread_id(); e < take.count; e += block_threads()) {
      const float own = adds ? me.in[take.first + e] : 0;
      me.out[take.first + e] = adds ? arrived[e] + own : arrived[e];
    }
    barrier_sync(0, block_threads());
    if (thread_id() == 0) store_release(&call.peers[left].mail[0].taken, message + 1);
  }
}

inline cudaError_t start(const Call& call, int /*channels*/, cudaStream_t stream) {
  return launch(all_reduce, dim3(1), dim3(kThreads), 0, stream, call);
}

}  // namespace ladder::ring
