// What the steps of the ladder share: who the ranks are, where their links lie, how a kernel waits.
// The driver (ladder.cu) sets it up and zeroes all flags and slots before every call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "treering/treering.h"

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx_memory.cuh"

namespace ladder {

using namespace treering::cuda;  // flags, barriers, launch: algos/cuda/ptx*.cuh

inline constexpr int kMaxRanks = 8;
inline constexpr int kMaxChannels = 16;
inline constexpr int kThreads = 256;  // of a block
inline constexpr std::uint64_t kSlots = 4;
inline constexpr std::uint64_t kSlotBytes = 32 * 1024;
// Of each chunk, a round handles so many slices. 3_pipelined.cu says why not more.
inline constexpr std::uint64_t kSlicesPerRound = kSlots / 2;

// The flags that others write and this rank's kernel polls. They lie in its own memory, so that
// polling does not cross a link, and each on a cache line of its own. One mailbox a channel.
struct Mailbox {
  alignas(128) std::uint64_t posted;  // messages that the left neighbour has written to our slots
  alignas(128) std::uint64_t taken;   // messages of ours that the right neighbour has read
};

// What everybody knows of a rank: addresses that every kernel may use, as over NVLink.
struct Peer {
  const float* in;
  float* out;
  Mailbox* mail;     // kMaxChannels of them
  std::byte* slots;  // of the link from its left neighbour, for each channel kSlots slots
};

enum class WaitFor : std::uint32_t { kMessage, kRoom };

// The first wait of a rank that gave up. In device memory.
struct Report {
  std::uint32_t reported;  // how many tried to
  WaitFor what;
  std::int32_t peer, block, thread;
  std::uint64_t number;  // of the message
};

// The kernels' one argument.
struct Call {
  std::int32_t rank, size;
  std::uint64_t count;  // floats
  Peer peers[kMaxRanks];
  Report* report;          // of this rank
  std::uint32_t* gave_up;  // of all ranks: one missed its deadline
  std::uint64_t timeout_ns;
};

constexpr int mod(int a, int n) { return (a % n + n) % n; }

struct Range {
  std::uint64_t first, count;
};
constexpr std::uint64_t least(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }
// Part `i` of `whole`, in parts of `size`; empty beyond the end.
constexpr Range part_of(Range whole, std::uint64_t i, std::uint64_t size) {
  const std::uint64_t skipped = least(i * size, whole.count);
  return {whole.first + skipped, least(size, whole.count - skipped)};
}
// A ring cuts the vector into one chunk a rank, at multiples of 16 bytes; the last ones may be
// short.
constexpr std::uint64_t chunk_elems(std::uint64_t count, int ranks) {
  const auto n = static_cast<std::uint64_t>(ranks);
  return ((count + n - 1) / n + 3) / 4 * 4;
}
constexpr Range chunk_of(const Call& call, int c) {
  return part_of({0, call.count}, static_cast<std::uint64_t>(c),
                 chunk_elems(call.count, call.size));
}

// Step i = 0 .. 2n-2 of a ring all-reduce whose steps receive and send at once: n-1 for the
// reduce-scatter and n-1 for the all-gather, joined where rank r completes chunk r (i = n-1).
struct RingStep {
  int chunk;
  bool receives, sends;  // from the left neighbour, to the right one
  bool adds, keeps;      // the own input, in the own output
};
constexpr RingStep ring_step(int i, int r, int n) {
  return {mod(r - 1 - i, n), i > 0, i < 2 * n - 2, i <= n - 1, i >= n - 1};
}
constexpr std::uint64_t rounds_of(const Call& call, std::uint64_t slice_elems) {
  const std::uint64_t round_elems = slice_elems * kSlicesPerRound;
  return (chunk_elems(call.count, call.size) + round_elems - 1) / round_elems;
}
// Where message `number` of the link to rank `reader` lies.
constexpr std::byte* slot_of(const Call& call, int reader, int channel, std::uint64_t number) {
  return call.peers[reader].slots +
         (static_cast<std::uint64_t>(channel) * kSlots + number % kSlots) * kSlotBytes;
}

// Polls done() until it is true. Once the deadline has passed it writes down what it waited for,
// and from then on no wait of any rank waits: the kernels run to their ends, with wrong results.
template <class Done>
TR_DEVICE void wait_until(const Call& call, WaitFor what, int peer, std::uint64_t number,
                          Done&& done, Where where = Where::here()) {
  if (done()) return;
  const std::uint64_t start_ns = timer_ns();
  for (std::uint32_t polls = 0; !done(); ++polls) {
    spin_pause(where);
    if (polls % 256 != 0) continue;
    if (timer_ns() - start_ns > call.timeout_ns) store_relaxed(call.gave_up, 1u);
    if (load_relaxed(call.gave_up) != 0) break;
  }
  // Even if it is done: a rank that gave up may have gone on and posted.
  if (load_relaxed(call.gave_up) == 0) return;
  Report* const report = call.report;
  if (fetch_add(&report->reported, 1u) != 0) return;
  report->what = what;
  report->peer = peer;
  report->block = block_id();
  report->thread = thread_id();
  report->number = number;
}

// One thread: until message `number` (counted from 0) of rank `peer` is in its slot. Partner: the
// store_release of `posted`.
TR_DEVICE void wait_message(const Call& call, const Mailbox& mine, int peer, std::uint64_t number,
                            Where where = Where::here()) {
  wait_until(
      call, WaitFor::kMessage, peer, number, [&] { return load_acquire(&mine.posted) > number; },
      where);
}
// One thread: until the slot of message `number` is free, because `peer` has read what was in it.
// Partner: the store_release of `taken`.
TR_DEVICE void wait_room(const Call& call, const Mailbox& mine, int peer, std::uint64_t number,
                         std::uint64_t slots = kSlots, Where where = Where::here()) {
  wait_until(
      call, WaitFor::kRoom, peer, number,
      [&] { return load_acquire(&mine.taken) + slots > number; }, where);
}

}  // namespace ladder
