// The window verbs of CudaPrims: peers' memory is read and written where it lies.
//
// publish and await_all are messages of the channel's one-to-many links, of protocol Simple: what a
// message says is where this rank's buffers are, in the addresses of its reader. So they have the
// links' deadlines, signatures and numbers. A block signals the blocks of its channel on the other
// ranks, and no others: they work on the same slice of every chunk.
//
// Order. publish is a barrier of the block, then a release by one thread a peer: what any thread of
// the block has stored before, into its own memory or into peers', and what kernels before this one
// have, is visible to whoever acquires it. await_all is an acquire by one thread a peer, then a
// barrier: all threads may then use plain loads. (Release and acquire are cumulative: what a peer
// has seen stored into its memory by a third rank before it published, is seen too.)
#pragma once

#include "algos/cuda/prims.cuh"

namespace treering::cuda {

template <class Protocol>
TR_DEVICE void CudaPrims<Protocol>::publish() {
  static_assert(Protocol::kHasTail, "signals are messages of protocol Simple");
  if (failed_) return;
  if constexpr (kFault != Fault::kNoBarrierBeforePost) barrier_sync(0, block_threads());
  const LinkSet to = to_all();
  sign(sizeof(Vec16));
  for (int i = 0; i < to.count; ++i) {
    if (!serves(to, i, true)) continue;
    const int peer = to.peer(i);
    DeviceTx& tx = ends(to, i).tx;
    if (!wait_for_room(Verb::kPublish, tx, peer, 0)) continue;
    const std::uint64_t* const seen_at = words_ + call_.seen_at + 2 * peer;
    store_vec(reinterpret_cast<Vec16*>(slot_of(tx)), {seen_at[0], seen_at[1]});
    post(tx);
  }
}

template <class Protocol>
TR_DEVICE void CudaPrims<Protocol>::await_all() {
  if (failed_) return;
  const LinkSet from = from_all_casts();
  sign(sizeof(Vec16));
  for (int i = 0; i < from.count; ++i) {
    if (!serves(from, i, false)) continue;
    const int peer = from.peer(i);
    DeviceRx& rx = ends(from, i).rx;
    if (!wait_for_message(Verb::kAwait, rx, peer, 0)) continue;
    const Vec16 at = load_vec(reinterpret_cast<const Vec16*>(slot_of(rx)));
    state_.peers[peer] = {reinterpret_cast<std::byte*>(at.lo), reinterpret_cast<std::byte*>(at.hi)};
    release(rx);
  }
  barrier_sync(0, block_threads());
  failed_ = state_.gather_failed != DeviceReport::kFine;
}

template <class Protocol>
TR_DEVICE void CudaPrims<Protocol>::gather_windows(const LinkSet& from, bool has_local, int chunk,
                                                   const LinkSet& to, std::uint64_t first_elem) {
  const std::size_t elem_bytes = type_bytes(type_);
  for (int i = 0; i < to.count; ++i) {
    if (!serves(to, i, true)) continue;
    state_.fold.outputs[i] = {
        state_.peers[to.peer(i)].out + (out_part_.offset(chunk) + first_elem) * elem_bytes, 0};
  }
  for (int i = 0; i < from.count; ++i) {
    if (!serves(from, i, false)) continue;
    state_.fold.inputs[place(from, i, has_local)] = {
        state_.peers[from.peer(i)].in + (in_part_.offset(chunk) + first_elem) * elem_bytes, 0};
  }
}

}  // namespace treering::cuda
