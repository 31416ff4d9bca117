// The FIFO: what a link is in memory, and the only thing of a transport that the executor touches.
//
// One writer, one or more readers. Message number m (0, 1, 2, ...) has a control line, m mod
// kLines, and, if it is longer than kInlineBytes, a data slot, m mod slots. The invariants are
// numbered in LINKS.md; the protocol is model-checked (tests/model/fifo.pml).
//
//   writer: wait for credit -> write payload or slot -> post: tail.store(number + 1, release)
//   reader: tail.load(acquire) == number + 1 -> read -> release: head.store(number + 1, release)
//   writer: credit: number - min(head.load(acquire)) < slots
//
// The line is 64 bytes: payload first, tail last, so that a small message crosses in one cache
// line. Slots may change their size from one operation to the next; the writer then waits until all
// readers have released everything, so both ends always agree where message m lies.
//
// FifoTx and FifoRx are plain structs, each private to one end and to one thread at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace treering {

inline constexpr std::size_t kInlineBytes = 48;
inline constexpr std::uint32_t kFifoLines = 16;
inline constexpr std::size_t kSlotAlign = 64;

// The orders that publish a message and give a slot back. The switches exist for one test, which
// builds itself with each of them and expects ThreadSanitizer to find the race
// (tests/transports/test_tsan.py).
#ifdef TR_TEST_RELAXED_POST
inline constexpr std::memory_order kFifoPostOrder = std::memory_order_relaxed;
#else
inline constexpr std::memory_order kFifoPostOrder = std::memory_order_release;
#endif
#ifdef TR_TEST_RELAXED_RELEASE
inline constexpr std::memory_order kFifoReleaseOrder = std::memory_order_relaxed;
#else
inline constexpr std::memory_order kFifoReleaseOrder = std::memory_order_release;
#endif

struct alignas(64) FifoLine {
  std::byte payload[kInlineBytes];
  std::uint64_t signature;          // of the operation and the length: both ends must agree
  std::atomic<std::uint64_t> tail;  // number + 1 once the message is complete; pairs with rx_ready
};
static_assert(sizeof(FifoLine) == 64);

struct alignas(64) FifoHead {
  std::atomic<std::uint64_t> head;  // messages that this reader has released; pairs with tx_refresh
};

// How long a message is, and the size of its slot: for links that a pump carries on (LINKS.md, T1).
// Written by tx_payload, read by the pump after the tail.
struct FifoLength {
  std::uint32_t bytes;
  std::uint32_t slot_bytes;
};

// The writer's end.
struct FifoTx {
  FifoLine* lines = nullptr;
  std::byte* data = nullptr;
  std::size_t data_bytes = 0;
  FifoHead* heads = nullptr;  // one per rank of the communicator for a cast, else one
  std::int32_t first_reader = 0;
  std::int32_t end_reader = 1;
  std::int32_t skip_reader = -1;  // a cast's own rank
  std::uint64_t next = 0;         // number of the next message to post
  std::uint64_t released = 0;     // the smallest head seen; never above next
  std::size_t slot_bytes = 0;     // geometry of the slots in use
  std::uint64_t moved_bytes = 0;  // posted so far, for reports
  FifoLength* lengths = nullptr;  // kFifoLines of them where a pump reads along, else none
};

// A reader's end.
struct FifoRx {
  FifoLine* lines = nullptr;
  std::byte* data = nullptr;
  std::size_t data_bytes = 0;
  FifoHead* head = nullptr;
  std::uint64_t next = 0;         // number of the next message to receive
  std::uint64_t moved_bytes = 0;  // received so far, for reports
};

inline std::size_t round_up_slot(std::size_t bytes) {
  return (bytes + kSlotAlign - 1) / kSlotAlign * kSlotAlign;
}
inline std::uint32_t fifo_slots(std::size_t data_bytes, std::size_t slot_bytes) {
  return static_cast<std::uint32_t>(std::min<std::size_t>(kFifoLines, data_bytes / slot_bytes));
}

// Looks at all heads [F6].
inline void tx_refresh(FifoTx& tx) {
  std::uint64_t lowest = tx.next;
  for (std::int32_t i = tx.first_reader; i < tx.end_reader; ++i) {
    if (i == tx.skip_reader) continue;
    lowest = std::min(lowest, tx.heads[i].head.load(std::memory_order_acquire));
  }
  tx.released = lowest;
}

// May a message of `bytes` bytes be written now [F3, F4]? slot_bytes: the geometry of this
// operation, a multiple of kSlotAlign, at least `bytes` (unless inline) and at most data_bytes.
inline bool tx_ready(FifoTx& tx, std::size_t bytes, std::size_t slot_bytes) {
  std::uint64_t window = kFifoLines;
  if (bytes > kInlineBytes) {
    if (tx.slot_bytes != slot_bytes) {
      if (tx.released != tx.next) tx_refresh(tx);
      if (tx.released != tx.next) return false;
      tx.slot_bytes = slot_bytes;
    }
    window = fifo_slots(tx.data_bytes, slot_bytes);
  }
  if (tx.next - tx.released < window) return true;
  tx_refresh(tx);
  return tx.next - tx.released < window;
}

// Where the payload of the next message, of `bytes` bytes, goes. Only after tx_ready; before every
// tx_post of a link with lengths.
inline std::byte* tx_payload(FifoTx& tx, std::size_t bytes) {
  if (tx.lengths != nullptr) {
    tx.lengths[tx.next % kFifoLines] = {static_cast<std::uint32_t>(bytes),
                                        static_cast<std::uint32_t>(tx.slot_bytes)};
  }
  if (bytes <= kInlineBytes) return tx.lines[tx.next % kFifoLines].payload;
  return tx.data + tx.next % fifo_slots(tx.data_bytes, tx.slot_bytes) * tx.slot_bytes;
}

// [F5] The release store below orders ordinary stores; a copy that used streaming stores must have
// ended in a store fence (engine/reduce.hpp does).
inline void tx_post(FifoTx& tx, std::uint64_t signature) {
  FifoLine& line = tx.lines[tx.next % kFifoLines];
  line.signature = signature;
  ++tx.next;
  line.tail.store(tx.next, kFifoPostOrder);  // pairs with rx_ready
}

// Is the next message there, whole [F7]?
inline bool rx_ready(const FifoRx& rx) {
  return rx.lines[rx.next % kFifoLines].tail.load(std::memory_order_acquire) == rx.next + 1;
}

// Only after rx_ready.
inline const FifoLine& rx_line(const FifoRx& rx) { return rx.lines[rx.next % kFifoLines]; }

inline const std::byte* rx_payload(const FifoRx& rx, std::size_t bytes, std::size_t slot_bytes) {
  if (bytes <= kInlineBytes) return rx_line(rx).payload;
  return rx.data + rx.next % fifo_slots(rx.data_bytes, slot_bytes) * slot_bytes;
}

// Only when the message has been read [F8].
inline void rx_release(FifoRx& rx) {
  ++rx.next;
  rx.head->head.store(rx.next, kFifoReleaseOrder);  // pairs with tx_refresh
}

}  // namespace treering
