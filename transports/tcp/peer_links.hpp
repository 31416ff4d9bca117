// The links between this rank and one of another host, both directions, in this rank's memory.
//
// A link has its FIFO at both ends: the writer posts into lines and slots here, they are copied
// into the same places there, and the reader's head comes back as credit. To the executor both ends
// look like shared memory. This file knows where messages lie and which may move; sockets are
// stream.hpp's.
//
// Threads: one at a time (the network's lock); the executor's threads use the ends meanwhile, as
// LINKS.md allows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/status.hpp"
#include "transports/fifo.hpp"
#include "transports/tcp/wire.hpp"

namespace treering::tcp {

// Lines, a head and slots, resident, of one end of a link.
class LinkMemory {
 public:
  static Result<LinkMemory> make(std::size_t data_bytes);
  LinkMemory() = default;
  LinkMemory(LinkMemory&& other) noexcept;
  LinkMemory& operator=(LinkMemory&& other) noexcept;
  ~LinkMemory();

  bool exists() const { return base_ != nullptr; }
  FifoLine* lines() const { return reinterpret_cast<FifoLine*>(base_); }
  FifoHead* head() const;
  std::byte* data() const;
  std::size_t data_bytes() const { return data_bytes_; }
  std::size_t bytes() const;  // in all

 private:
  std::byte* base_ = nullptr;
  std::size_t data_bytes_ = 0;
};

class PeerLinks {
 public:
  // data_bytes: of the slots of each link, by index.
  PeerLinks(int rank, int peer, const std::array<std::size_t, kLinks>& data_bytes, bool checksum);

  // From now on what is posted at `end` goes to the peer, and its credit to `head`. Both, and
  // end.lengths, live longer than this.
  void open_out(int link, const FifoTx& end, FifoHead& head);
  // The memory of the peer's link, made at first use: by its reader or by its first message.
  Result<const LinkMemory*> open_in(int link);

  // The next message that is posted and not yet taken; its payload stays until the peer has
  // released it.
  bool take_message(Frame* frame, const std::byte** payload);
  // The next credit to be given: where the writer may soon lack it, or any that there is.
  bool take_credit(Frame* frame, bool any);
  bool has_message() const;
  bool has_credit() const;

  // A frame of the peer: where its payload goes (nullptr: it has none). An error: not what this
  // library sends.
  Status begin(const Frame& frame, std::byte** payload);
  // Its payload is there.
  Status complete(const Frame& frame, const std::byte* payload);

  // Bytes of memory of all ends here.
  std::size_t memory_bytes() const;
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }

 private:
  struct Outbound {
    const FifoTx* end = nullptr;
    FifoHead* head = nullptr;
    std::uint64_t taken = 0;  // messages
  };
  struct Inbound {
    LinkMemory memory;
    std::uint64_t credited = 0;  // the last head that the peer was told
    std::uint32_t window = 1;    // messages that its writer may have on their way
  };
  static bool is_posted(const Outbound& out);
  Status begin_message(const Frame& frame, std::byte** payload);
  Status take(const Frame& frame);
  Status bad(const Frame& frame, const char* what) const;

  int rank_;
  int peer_;
  std::array<std::size_t, kLinks> data_bytes_;
  bool checksum_;
  std::array<Outbound, kLinks> out_;
  std::array<Inbound, kLinks> in_;
  int turn_ = 0;  // the link that is asked first
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace treering::tcp
