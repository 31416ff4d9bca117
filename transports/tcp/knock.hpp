// Knock: one connection on its way to being one of a peer's: connecting, proving the key, saying
// what it is for, being chosen. A machine over a socket that does not block; meet.cpp polls many.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <sys/socket.h>

#include "core/deadline.hpp"
#include "core/handshake.hpp"
#include "core/secret.hpp"
#include "core/status.hpp"
#include "core/unique_fd.hpp"

namespace treering::tcp {

class Knock {
 public:
  enum class State : std::uint8_t {
    kConnecting,
    kProving,
    kSaying,   // connector: the hello is on its way; acceptor: it waits for it
    kOffered,  // connector: welcome, may choose; acceptor: may be chosen
    kChosen,   // it is the peer's now
    kFailed,
  };

  // To `rank` by `to`, as its connection number `index` (0: control).
  static Knock connect(int own_rank, int rank, int index, const sockaddr_storage& to,
                       std::string address, const Secret& key);
  // An accepted one.
  static Knock accept(int own_rank, UniqueFd socket, const Secret& key);

  State state() const { return state_; }
  bool is_connector() const { return connector_; }
  int rank() const { return rank_; }    // the peer's; of an accepted one from kOffered on
  int index() const { return index_; }  // likewise
  const std::string& address() const { return address_; }  // a connector's
  const sockaddr_storage& to() const { return to_; }
  const std::string& why() const { return why_; }  // it failed
  int fd() const { return socket_.get(); }
  short events() const;
  const Deadline& deadline() const { return deadline_; }  // of an accepted one to be chosen

  // Goes as far as it can without blocking.
  void advance();
  void choose();  // a connector that is kOffered
  void fail(std::string why);
  UniqueFd take_socket() { return std::move(socket_); }

 private:
  struct Hello {
    std::uint32_t rank;
    std::uint32_t index;
  };
  Knock(bool connector, int own_rank) : connector_(connector), own_rank_(own_rank) {}
  bool step();
  bool prove();
  bool read(void* bytes, std::size_t count);  // all of it
  void write(const void* bytes, std::size_t count);

  bool connector_;
  int own_rank_;
  int rank_ = -1;
  int index_ = -1;
  State state_ = State::kConnecting;
  UniqueFd socket_;
  sockaddr_storage to_{};
  std::string address_;
  std::string why_;
  Deadline deadline_ = Deadline::never();
  std::unique_ptr<Handshake> handshake_;
  std::string out_;
  std::string in_;
};

}  // namespace treering::tcp
