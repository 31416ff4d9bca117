// Traffic over a FIFO in ordinary memory: one writer thread, readers in other threads, every byte
// checked. Shared by the unit test and by the program that ThreadSanitizer watches.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <random>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

#include "transports/fifo.hpp"

namespace treering::test {

inline constexpr std::size_t kDataBytes = 16 * 1024;

struct Message {
  std::size_t bytes = 0;
  std::size_t slot_bytes = 0;  // of the operation that it belongs to
};

// One link in ordinary memory. Reader number 0 is the writer itself if there are several.
class Link {
 public:
  explicit Link(int readers)
      : lines_(std::make_unique<FifoLine[]>(kFifoLines)),
        heads_(std::make_unique<FifoHead[]>(static_cast<std::size_t>(readers) + 1)),
        data_(static_cast<std::byte*>(std::aligned_alloc(4096, kDataBytes)), &std::free) {
    tx.lines = lines_.get();
    tx.data = data_.get();
    tx.data_bytes = kDataBytes;
    tx.heads = heads_.get();
    tx.end_reader = readers + 1;
    tx.skip_reader = 0;
  }
  FifoRx rx(int reader) {
    FifoRx end;
    end.lines = lines_.get();
    end.data = data_.get();
    end.data_bytes = kDataBytes;
    end.head = &heads_[static_cast<std::size_t>(reader)];
    return end;
  }
  FifoTx tx;

 private:
  std::unique_ptr<FifoLine[]> lines_;
  std::unique_ptr<FifoHead[]> heads_;
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

// Byte i of message m: differs between any two messages that can share a slot.
inline std::byte pattern(std::uint64_t m, std::size_t i) {
  std::uint64_t x = m * 0x9e3779b97f4a7c15U + i * 0xd6e8feb86659fd93U;
  x ^= x >> 32;
  return static_cast<std::byte>(x * 0x94d049bb133111ebU >> 56);
}
inline std::uint64_t signature_of(std::uint64_t m) { return m * 0x2545f4914f6cdd1dU + 1; }

// Operations of 1 to 12 messages; each has one slot size. `inline_percent` of the messages are
// short.
inline std::vector<Message> random_messages(std::size_t count, int inline_percent,
                                            std::mt19937_64& random) {
  constexpr std::size_t kSlotSizes[] = {64, 128, 320, 1024, 4096, 4160, 8192, 16384};
  std::vector<Message> messages;
  while (messages.size() < count) {
    const std::size_t slot_bytes = kSlotSizes[random() % std::size(kSlotSizes)];
    for (auto left = 1 + random() % 12; left > 0; --left) {
      const bool is_inline = static_cast<int>(random() % 100) < inline_percent;
      const std::size_t limit = is_inline ? kInlineBytes : slot_bytes;
      messages.push_back({1 + random() % limit, slot_bytes});
    }
  }
  return messages;
}

// Polls until `ready` holds, at first without giving up the core: to a busy machine's scheduler
// each yield is worth a whole slice. False after half a minute, so that a lost message fails and
// does not hang.
template <class Ready>
bool wait_until(Ready ready) {
  for (int polls = 0; polls < 500; ++polls)
    if (ready()) return true;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    ::sched_yield();
  }
  return true;
}

inline std::string write_all(FifoTx& tx, const std::vector<Message>& messages) {
  for (std::uint64_t m = 0; m < messages.size(); ++m) {
    const auto [bytes, slot_bytes] = messages[m];
    if (!wait_until([&] { return tx_ready(tx, bytes, slot_bytes); }))
      return "no credit for message " + std::to_string(m);
    std::byte* const payload = tx_payload(tx, bytes);
    for (std::size_t i = 0; i < bytes; ++i) payload[i] = pattern(m, i);
    tx_post(tx, signature_of(m));
  }
  return "";
}

inline std::string read_all(FifoRx rx, const std::vector<Message>& messages) {
  for (std::uint64_t m = 0; m < messages.size(); ++m) {
    const auto [bytes, slot_bytes] = messages[m];
    if (!wait_until([&] { return rx_ready(rx); }))
      return "message " + std::to_string(m) + " did not come";
    if (rx_line(rx).signature != signature_of(m))
      return "message " + std::to_string(m) + " has another's signature";
    const std::byte* const payload = rx_payload(rx, bytes, slot_bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      if (payload[i] != pattern(m, i))
        return "message " + std::to_string(m) + " is wrong at byte " + std::to_string(i);
    rx_release(rx);
  }
  return "";
}

// The first error of any end, "" if every reader got every message right.
inline std::string exchange(const std::vector<Message>& messages, int readers) {
  Link link(readers);
  std::vector<std::string> errors(static_cast<std::size_t>(readers) + 1);
  std::vector<std::thread> threads;
  for (int r = 1; r <= readers; ++r)
    threads.emplace_back(
        [&, r, rx = link.rx(r)] { errors[static_cast<std::size_t>(r)] = read_all(rx, messages); });
  errors[0] = write_all(link.tx, messages);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors)
    if (!error.empty()) return error;
  return "";
}

}  // namespace treering::test
