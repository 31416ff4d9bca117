// Processes as the transport sees them: which ranks share one, and has one ended?
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <sys/types.h>

#include "core/status.hpp"
#include "core/unique_fd.hpp"

namespace treering {

using Token = std::array<std::uint64_t, 2>;  // 128 random bits

Result<Token> random_token();

// Names this process among all; a forked child gets another. Ranks with equal names are threads of
// one process.
Result<Token> process_token();

// Can this process watch others by pidfd at all (Linux 5.3, and not filtered)?
bool pidfds_work();

// Waits for the end of one process without holding a connection to it. Shared by all communicators
// of this process that watch the same one, so that many communicators cost one descriptor per
// process.
class ProcessWatch {
 public:
  // `pid` as seen from this process's pid namespace. The caller knows that the process lives now
  // and still lives after the call (it takes part in a rendezvous afterwards): so the number cannot
  // have gone to another process in between.
  static Result<std::shared_ptr<ProcessWatch>> of(pid_t pid);

  ProcessWatch(pid_t pid, UniqueFd fd) : pid_(pid), fd_(std::move(fd)) {}
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;
  ~ProcessWatch();

  // Readable once the process has ended (a zombie has).
  int fd() const { return fd_.get(); }
  bool ended() const;

 private:
  pid_t pid_;
  UniqueFd fd_;
};

}  // namespace treering
