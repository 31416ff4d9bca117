// Stream: one data connection to a peer. Several of them carry one peer's frames.
//
// Sends posted messages straight out of their slots, as many as there are in one system call, and
// receives straight into slots. A frame that has begun on a stream ends on it. Never blocks.
//
// Threads: one at a time (the network's lock).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <sys/uio.h>

#include "core/status.hpp"
#include "core/unique_fd.hpp"
#include "transports/tcp/peer_links.hpp"
#include "transports/tcp/wire.hpp"

namespace treering::tcp {

class Stream {
 public:
  explicit Stream(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  // Everything that was taken from the links has gone to the kernel.
  bool is_flushed() const { return first_ == end_; }
  // No frame will come any more: the peer has closed it, or error() says what happened.
  bool is_closed() const { return closed_; }
  const Status& error() const { return error_; }
  // The peer's machine says that nobody is there any more. What had come before is received first.
  bool is_reset() const { return reset_; }
  bool may_send() const { return !closed_ && !reset_ && error_.ok(); }

  // Sends what the links have, until there is no more or no room; any_credit: credits that are not
  // urgent, too. Returns whether anything moved.
  bool send(PeerLinks& links, bool any_credit);
  // Receives what is there, a few slots at most. Returns whether anything moved.
  bool receive(PeerLinks& links);

 private:
  static constexpr int kBatch = 16;  // frames a system call
  static constexpr std::size_t kBatchBytes = 256 << 10;
  static constexpr std::size_t kStageBytes = 4096;

  bool fill(PeerLinks& links, bool any_credit);
  void push(const void* bytes, std::size_t count);
  bool flush(bool* moved);
  Status parse(PeerLinks& links);
  Status finish(PeerLinks& links);
  void close(Status error);
  void fail(const char* what, int error);

  UniqueFd socket_;
  bool closed_ = false;
  bool reset_ = false;
  Status error_;
  // What is being sent: parts [first_, end_).
  std::array<Frame, kBatch> frames_;
  std::array<iovec, 2 * kBatch> parts_;
  int first_ = 0;
  int end_ = 0;
  // What is being received: a frame whose payload still lacks bytes, and bytes read beyond it.
  Frame frame_{};
  bool in_frame_ = false;
  std::byte* payload_ = nullptr;
  std::size_t missing_ = 0;
  std::size_t staged_ = 0;
  std::array<std::byte, kStageBytes> stage_;
};

}  // namespace treering::tcp
