// Control: the connection between two ranks that no data can block. It carries boards.
//
// A rank pushes its board when its state changes, and sends it when the peer asks, whatever it is
// doing: the network's thread answers. What it receives becomes the mirror of the peer's board. The
// end of the connection, without a board that said finalized, is the peer's end.
//
// Threads: one at a time (the network's lock); the mirror is read by anybody.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string>

#include "core/status.hpp"
#include "core/unique_fd.hpp"
#include "transports/board.hpp"

namespace treering::tcp {

class Control {
 public:
  using Clock = std::chrono::steady_clock;

  Control(UniqueFd socket, const Board& own, Board& mirror)
      : socket_(std::move(socket)), own_(own), mirror_(mirror), heard_(Clock::now()) {}

  int fd() const { return socket_.get(); }
  bool is_closed() const { return closed_; }
  const Status& error() const { return error_; }
  bool is_flushed() const { return out_.empty() && !wants_push_ && !wants_answer_; }
  Clock::time_point heard() const { return heard_; }  // the last time

  void push_board() { wants_push_ = true; }
  void ask() { wants_answer_ = true; }
  // Sends what was asked for, as far as there is room. At most one board and one question wait,
  // however slow the peer is.
  void flush();
  // Takes what is there. Returns whether the peer has asked, which push_board() answers.
  bool receive();

 private:
  enum Kind : std::uint32_t { kBoard = 1, kQuestion = 2 };
  struct Head {
    std::uint32_t kind;
    std::uint32_t bytes;
  };
  void close(Status error);
  Status parse(bool* asked);

  UniqueFd socket_;
  const Board& own_;
  Board& mirror_;
  Clock::time_point heard_;
  bool closed_ = false;
  Status error_;
  bool wants_push_ = false;
  bool wants_answer_ = false;
  std::string out_;
  std::size_t sent_ = 0;
  alignas(64) std::array<std::byte, 2 * (sizeof(Head) + sizeof(Board))> in_;
  std::size_t received_ = 0;
};

}  // namespace treering::tcp
