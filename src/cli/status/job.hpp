// A running or recorded communicator as `treering status` shows it: its ranks' boards and flight
// records. Read from memory files through /proc/PID/fd, which stops nobody and which the kernel
// allows to the same user (and root) only; or from a file of the flight recorder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/snapshot.hpp"
#include "core/status.hpp"

namespace treering::status {

struct FlightCall {
  std::uint64_t number = 0;
  std::uint64_t sequence = kNoOperation;  // kNoOperation: a send or receive
  std::uint64_t kind = 0;                 // packed by comm/signature.hpp
  std::uint64_t count = 0;
  std::uint64_t begin_ns = 0;  // since the epoch
  std::uint64_t end_ns = 0;    // 0: not over
};

struct FlightLog {
  int rank = 0;
  std::vector<FlightCall> calls;  // oldest first
};

struct Job {
  std::uint64_t communicator = 0;
  int size = 0;
  // By rank. Not found: its process has ended, or it is on another host, or of another user.
  std::vector<std::optional<RankSnapshot>> ranks;
  std::vector<FlightLog> flights;
};

// All jobs that `name` means: a process id (that process's, or those of its descendants, such as of
// `treering run`), the beginning of a communicator's number in hexadecimal, a file of the flight
// recorder, or, if empty, all of this user on this machine. An error says what was looked for.
Result<std::vector<Job>> find_jobs(const std::string& name);
Result<Job> read_record(const std::string& path);

// Boards for comm/snapshot.hpp's chains: ranks that were not found wait for nobody.
std::vector<RankSnapshot> boards_of(const Job& job);

std::string to_text(const Job& job);
std::string to_json(const std::vector<Job>& jobs);

}  // namespace treering::status
