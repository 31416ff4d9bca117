// Step 3: slices and slots. The neighbour reads one slice while the next is being copied.
//
// New       A chunk is sent in slices of a slot's size, and a link has four slots. Message m lies
//           in slot m mod 4; `posted` and `taken` count messages and only grow. And receiving and
//           sending are one loop: what arrives is added in a register and stored where it goes.
// Faster    All links and ranks are busy at once: a rank posts slice k and goes on to k+1, while
//           its neighbour already works on k. A step loads and stores three words an element
//           instead of four or five.
// Wastes    Still one block of a GPU with a hundred, and 4 bytes in each access.
//
// Why rounds? If each rank sent a whole chunk before it received one, a chunk of more than four
// slices would fill all slots, and everybody would wait for room: a deadlock. So a round handles
// two slices of each chunk. Then a rank at step i never waits but for a rank at an earlier step:
// for a message, as that was sent in step i-1; and for room, as four messages that the right
// neighbour has not read are of steps i, i-1 and i-2 (two each, the last of i not yet sent), so it
// has still to receive one of step i-2. Some rank is at the earliest step, and it can go on.
#include "ladder.cuh"

namespace ladder::pipelined {

inline constexpr std::uint64_t kSliceElems = kSlotBytes / sizeof(float);

TR_KERNEL(kThreads)
all_reduce(TR_PARAMETER Call call) {
  const int n = call.size, r = call.rank, left = mod(r - 1, n), right = mod(r + 1, n);
  const Peer& me = call.peers[r];
  Mailbox& mine = me.mail[0];
  std::uint64_t sent = 0, received = 0;  // messages; all threads count along

  const std::uint64_t rounds = rounds_of(call, kSliceElems);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < 2 * n - 1; ++i) {
      const RingStep step = ring_step(i, r, n);
      for (std::uint64_t k = 0; k < kSlicesPerRound; ++k) {
        const Range part =
            part_of(chunk_of(call, step.chunk), round * kSlicesPerRound + k, kSliceElems);
        if (part.count == 0) break;  // at both ends of the link, so that they count alike

        if (thread_id() == 0 && step.sends) wait_room(call, mine, right, sent);
        if (thread_id() == 0 && step.receives) wait_message(call, mine, left, received);
        barrier_sync(0, block_threads());
        const auto* const from = reinterpret_cast<const float*>(slot_of(call, r, 0, received));
        auto* const to = reinterpret_cast<float*>(slot_of(call, right, 0, sent));
        for (std::uint64_t e = thread_id(); e < part.count; e += block_threads()) {
          float value = step.receives ? from[e] : me.in[part.first + e];
          if (step.receives && step.adds) value += me.in[part.first + e];
          if (step.keeps) me.out[part.first + e] = value;
          if (step.sends) to[e] = value;
        }
        barrier_sync(0, block_threads());
        if (step.sends) ++sent;
        if (step.receives) ++received;
        if (thread_id() == 0) {
          if (step.sends) store_release(&call.peers[right].mail[0].posted, sent);
          if (step.receives) store_release(&call.peers[left].mail[0].taken, received);
        }
      }
    }
  }
}

inline cudaError_t start(const Call& call, int /*channels*/, cudaStream_t stream) {
  return launch(all_reduce, dim3(1), dim3(kThreads), 0, stream, call);
}

}  // namespace ladder::pipelined
