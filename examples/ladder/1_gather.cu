// Step 1: rank 0 does it all.
//
// New       Ranks hand memory to each other with a flag. A store_release of the flag says "what I
//           wrote before may be read"; the load_acquire that sees it says "then I read it". In
//           between, a barrier: one thread sees the flag, and all 256 may then read.
// Good      Two flags a rank and nothing else: hard to get wrong, and for a few bytes not slow.
// Wastes    Rank 0 moves everybody's bytes: n S in and n S out. With twice the ranks it takes twice
//           the time, while all the others wait. And it uses one block of its GPU: an H200 has 132
//           multiprocessors, and one of them cannot saturate its memory.
//
// S is the bytes of the vector, n the number of ranks.
#include "ladder.cuh"

namespace ladder::gather {

TR_KERNEL(kThreads)
all_reduce(TR_PARAMETER Call call) {
  const int n = call.size;
  // Rank 0 hears from each rank q, so it needs a flag for each: that in its mailbox q.
  static_assert(kMaxChannels >= kMaxRanks);
  Mailbox* const root = call.peers[0].mail;
  if (call.rank != 0) {
    if (thread_id() == 0) {
      store_release(&root[call.rank].posted, 1);                // my input may be read
      wait_message(call, call.peers[call.rank].mail[0], 0, 0);  // my output is written
    }
    return;
  }

  if (thread_id() == 0) {
    for (int q = 1; q < n; ++q) wait_message(call, root[q], q, 0);
  }
  barrier_sync(0, block_threads());  // what thread 0 has seen, all have seen
  for (std::uint64_t e = thread_id(); e < call.count; e += block_threads()) {
    float sum = call.peers[0].in[e];
    for (int q = 1; q < n; ++q) sum += call.peers[q].in[e];
    for (int q = 0; q < n; ++q) call.peers[q].out[e] = sum;
  }
  barrier_sync(0, block_threads());  // all 256 have written, so thread 0 may say so for them
  if (thread_id() == 0) {
    for (int q = 1; q < n; ++q) store_release(&call.peers[q].mail[0].posted, 1);
  }
}

inline cudaError_t start(const Call& call, int /*channels*/, cudaStream_t stream) {
  return launch(all_reduce, dim3(1), dim3(kThreads), 0, stream, call);
}

}  // namespace ladder::gather
