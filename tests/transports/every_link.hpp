// Traffic over every link of a communicator at once, checked to the byte: for any transport.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <sched.h>
#include <string>
#include <vector>

#include "tests/transports/ranks.hpp"
#include "transports/registry.hpp"

namespace treering::test {

inline TransportOptions small_links() {
  TransportOptions options;
  options.link_bytes = 16 * 1024;
  options.cast_bytes = 32 * 1024;
  options.sendrecv_bytes = 8 * 1024;
  options.timeout_ms = 10000;
  return options;
}

inline std::vector<LinkId> all_links(int ranks) {
  std::vector<LinkId> ids;
  for (int src = 0; src < ranks; ++src) {
    ids.push_back({LinkId::Kind::kCast, 0, src, -1});
    for (int dst = 0; dst < ranks; ++dst) {
      ids.push_back({LinkId::Kind::kSendRecv, 0, src, dst});
      for (int channel = 0; channel < kPairChannels && dst != src; ++channel)
        ids.push_back({LinkId::Kind::kPair, static_cast<std::uint8_t>(channel), src, dst});
    }
  }
  return ids;
}

// Message m of a link: its length goes over the border between a line and a slot; its bytes tell
// the link.
inline constexpr std::uint64_t kMessages = 60;
inline constexpr std::size_t kSlotBytes = 2048;
inline std::size_t bytes_of(std::uint64_t m) {
  return m % 3 == 0 ? 1 + m % 48 : 49 + m * 33 % 2000;
}
inline std::byte byte_of(std::size_t link, std::uint64_t m, std::size_t i) {
  return static_cast<std::byte>(link * 37 + m * 11 + i * 7 + (i >> 8));
}

struct End {
  std::size_t link;
  FifoTx* tx = nullptr;
  FifoRx* rx = nullptr;
  std::uint64_t moved() const { return tx != nullptr ? tx->next : rx->next; }
  bool done() const { return moved() == kMessages; }
};

// One message if it can be moved now; an error if it is wrong.
inline std::string step(End& end) {
  if (end.done()) return "";
  if (end.tx != nullptr) {
    const std::uint64_t m = end.tx->next;
    if (!tx_ready(*end.tx, bytes_of(m), kSlotBytes)) return "";
    std::byte* const payload = tx_payload(*end.tx, bytes_of(m));
    for (std::size_t i = 0; i < bytes_of(m); ++i) payload[i] = byte_of(end.link, m, i);
    tx_post(*end.tx, end.link * 1000 + m);
    return "";
  }
  if (!rx_ready(*end.rx)) return "";
  const std::uint64_t m = end.rx->next;
  TR_MUST(rx_line(*end.rx).signature == end.link * 1000 + m);
  const std::byte* const payload = rx_payload(*end.rx, bytes_of(m), kSlotBytes);
  for (std::size_t i = 0; i < bytes_of(m); ++i) TR_MUST(payload[i] == byte_of(end.link, m, i));
  rx_release(*end.rx);
  return "";
}

// Every link of the communicator carries kMessages messages, all at the same time.
inline std::string use_every_link(TestRendezvous& rendezvous, const TransportOptions& options) {
  auto connected = connect_transport(rendezvous, options);
  TR_MUST_OK(connected.status());
  Transport& transport = *connected.value();
  const int rank = rendezvous.rank();
  const std::vector<LinkId> ids = all_links(rendezvous.size());
  std::vector<End> ends;
  for (std::size_t l = 0; l < ids.size(); ++l) {
    if (ids[l].src == rank) {
      auto tx = transport.tx(ids[l]);
      TR_MUST_OK(tx.status());
      ends.push_back({l, tx.value(), nullptr});
    }
    const bool is_cast = ids[l].kind == LinkId::Kind::kCast;
    if (is_cast ? ids[l].src != rank : ids[l].dst == rank) {
      auto rx = transport.rx(ids[l]);
      TR_MUST_OK(rx.status());
      ends.push_back({l, nullptr, rx.value()});
    }
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (bool all_done = false; !all_done;) {
    TR_MUST(std::chrono::steady_clock::now() < limit);
    all_done = true;
    bool any_moved = false;
    for (End& end : ends) {
      const std::uint64_t before = end.moved();
      if (std::string error = step(end); !error.empty())
        return to_string(ids[end.link]) + ": " + error;
      any_moved = any_moved || end.moved() != before;
      all_done = all_done && end.done();
    }
    if (LinkPump* const pump = transport.pump()) any_moved = pump->progress() || any_moved;
    if (!any_moved) ::sched_yield();
  }
  if (LinkPump* const pump = transport.pump()) pump->flush();
  TR_MUST_OK(transport.check_peers());
  return rendezvous.barrier();
}

}  // namespace treering::test
