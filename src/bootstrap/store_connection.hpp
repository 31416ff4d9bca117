// A connection as the store server sees it: input gathered until a message is whole, output queued
// until the socket takes it. Never blocks. Used by the server's thread only.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "core/deadline.hpp"
#include "core/handshake.hpp"
#include "core/unique_fd.hpp"

namespace treering {

class StoreGroup;

// A message that goes to many connections is kept once.
using SharedText = std::shared_ptr<const std::string>;

class StoreConnection {
 public:
  StoreConnection(UniqueFd fd, Handshake hands, Deadline greet_by)
      : handshake(std::move(hands)), greeting(greet_by), fd_(std::move(fd)) {}

  StoreConnection(const StoreConnection&) = delete;
  StoreConnection& operator=(const StoreConnection&) = delete;
  // The peer sees the end even if a forked child has a copy of the socket.
  ~StoreConnection();

  int fd() const { return fd_.get(); }

  // Appends what has arrived to input(), which grows to `limit` bytes at most. False: the peer has
  // closed or the connection is broken.
  bool read(std::size_t limit);
  std::string& input() { return input_; }

  void queue(SharedText text) { output_.push_back(std::move(text)); }
  // Writes as much as the socket takes. False: broken.
  bool flush();
  bool has_output() const { return !output_.empty(); }

  Handshake handshake;
  const Deadline greeting;  // until then it must have proved the key and said its rank
  // Null until admitted; then the rank's place.
  StoreGroup* group = nullptr;
  int rank = -1;
  bool server_is_here = false;
  bool is_leaving = false;  // refused: closes when its output has gone
  bool is_dead = false;     // to be removed after the current batch of events

 private:
  UniqueFd fd_;
  std::string input_;
  std::deque<SharedText> output_;
  std::size_t sent_ = 0;  // bytes of output_.front() that have gone
};

}  // namespace treering
