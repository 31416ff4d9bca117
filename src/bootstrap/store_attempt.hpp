// One attempt of a rank to find the store at one place: connects and proves the key, without
// blocking. A rank makes several at once and joins through the first that succeeds
// (store_join.cpp).
#pragma once

#include <optional>
#include <string>
#include <sys/socket.h>

#include "core/handshake.hpp"
#include "core/secret.hpp"
#include "core/status.hpp"
#include "core/unique_fd.hpp"

namespace treering {

class StoreAttempt {
 public:
  enum class Found {
    kGoing,
    kStore,        // ours: both have proved the key
    kOther,        // ours, but of another version or build: status says so
    kNothing,      // nobody listens, or no way leads there
    kBusy,         // no answer yet, or a store that dropped us: try again
    kSilent,       // a listener that has said nothing yet
    kForeign,      // something else, or another job's store
    kSystemError,  // status
  };

  StoreAttempt(const sockaddr_storage& to, std::string place, const Secret& key);

  Found found() const { return found_; }
  const std::string& place() const { return place_; }  // "10.0.0.1:4711 (eth0)"
  const std::string& what() const { return what_; }    // was found, in words
  const Status& status() const { return status_; }

  int fd() const { return fd_.get(); }
  short events() const;  // for poll; requires kGoing
  // Goes as far as it can without blocking. Requires kGoing.
  void advance();
  // Time is up: says what there was so far.
  void give_up();
  // Requires kStore. The socket does not block.
  UniqueFd take_socket() { return std::move(fd_); }

 private:
  void end(Found found, std::string what);
  void on_connected(int error);
  void on_failed_handshake();

  UniqueFd fd_;
  const std::string place_;
  Found found_ = Found::kGoing;
  bool connected_ = false;
  std::optional<Handshake> handshake_;
  std::string output_;
  std::string what_;
  Status status_;
};

}  // namespace treering
