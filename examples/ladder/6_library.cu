// Step 6: the library's own.
//
// New       Nothing of the kernel is here. algos/ring.hpp has the ring as in the paper:
//
//             p.send(mod(r - 1, n), right);
//             for (int i = 2; i < n; ++i) p.recv_reduce_send(left, mod(r - i, n), right);
//             p.recv_reduce_copy_send(left, r, right, Last::kYes);
//             for (int i = 1; i < n - 1; ++i) p.recv_copy_send(left, mod(r - i, n), right);
//             p.recv(left, mod(r + 1, n));
//
//           and p is CudaPrims<Simple> (algos/cuda/prims.cuh), whose step() is the inner loop of
//           step 4: wait for room and for the message, barrier, fold, barrier, post and release.
//           With other p the same five lines run on the host's memory, are proven, and are drawn.
//           CudaPrims<LL> makes them step 5.
// Better    Any type, operator, alignment and root; trees and direct algorithms besides the ring;
//           the protocol and the channels are chosen by size. Numbers of messages stay with the
//           links, so that nothing has to be zeroed between calls. A message carries a signature:
//           ranks that call different things learn it. Processes, too, and streams and graphs.
// Wastes    One kernel for all types asks "which type?" once a slice. No LL128 yet; no copy engine,
//           no multicast in the switch.
#include "ladder.cuh"

namespace ladder::library {

// What the driver has set for `comm`: algorithm ring, and TR_PROTOCOL=Simple.
inline tr_result_t all_reduce(const Call& call, tr_comm_t comm) {
  const Peer& me = call.peers[call.rank];
  return tr_all_reduce(me.in, me.out, call.count, TR_FLOAT32, TR_SUM, comm, nullptr);
}

}  // namespace ladder::library
