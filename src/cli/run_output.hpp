// Carries the output of the ranks to ours: whole lines, each with its rank in front, never mixed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/unique_fd.hpp"

namespace treering::run {

// One of our outputs. Never blocks: it takes anything into its queue and writes when poll says so.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {}
  int fd() const { return fd_; }
  void add(std::string_view text) {
    if (!is_broken_) queue_.append(text);
  }
  std::size_t waiting_bytes() const { return queue_.size() - sent_; }
  // So much waits that the ranks should wait too.
  bool is_full() const { return waiting_bytes() > kFullBytes; }
  // After poll has said POLLOUT (or an error). False: nobody reads any more; from now on the sink
  // swallows what it gets.
  bool write_some();

 private:
  static constexpr std::size_t kFullBytes = 4 << 20;
  int fd_;  // not owned: the process's own standard output or error
  std::string queue_;
  std::size_t sent_ = 0;
  bool is_broken_ = false;
};

// One output of one rank.
class Source {
 public:
  Source(UniqueFd fd, int rank, Sink& sink);
  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.valid(); }
  Sink& sink() const { return *sink_; }
  // Reads what is there, passes whole lines on. At the end of the stream, an unfinished line too.
  void read_some();
  // Passes an unfinished line on and closes.
  void close();

 private:
  // A line that is longer is cut here: the memory of the launcher is bounded.
  static constexpr std::size_t kMaxLineBytes = 16 << 20;
  void emit(std::string_view line);

  UniqueFd fd_;
  std::string prefix_;
  Sink* sink_;
  std::string line_;  // has no line break yet
};

}  // namespace treering::run
