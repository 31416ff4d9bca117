// The flight recorder: the last N calls of a rank with their times, in a ring of its own memory
// file, where `treering status` finds it; on an error it goes to disk with every rank's board.
//
// Threads: begin and end by one at a time, as the communicator's operations; save by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "core/unique_fd.hpp"
#include "transports/board.hpp"
#include "transports/segment.hpp"

namespace treering {

// Times in nanoseconds since the epoch. A file of memory or on disk begins with this.
struct FlightHeader {
  std::atomic<std::uint64_t> magic;  // kFlightMagic
  std::uint64_t communicator;
  std::int32_t rank;
  std::int32_t size;
  std::int32_t pid;
  std::uint32_t capacity;              // entries
  std::uint32_t boards;                // that follow the entries; 0 in memory
  std::uint32_t board_bytes;           // sizeof(Board)
  std::atomic<std::uint64_t> written;  // calls so far; the entry of call i is i mod capacity
};
inline constexpr std::uint64_t kFlightMagic = 0x3130'7468'6769'6c46;  // "Flight01"

struct FlightEntry {
  std::atomic<std::uint64_t> number;    // of the call, sends and receives too, + 1; 0: none
  std::atomic<std::uint64_t> sequence;  // of the operation; kNoOperation: a send or receive
  std::atomic<std::uint64_t> what;      // packed by comm/signature.hpp
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> begin_ns;
  std::atomic<std::uint64_t> end_ns;  // 0: not over; on a GPU it is not known
};

class FlightRecorder {
 public:
  // capacity: entries, at least 1.
  static Result<std::unique_ptr<FlightRecorder>> make(std::uint64_t communicator, int rank,
                                                      int size, std::uint32_t capacity);

  // Returns the number of the entry, for end.
  std::uint64_t begin(std::uint64_t sequence, std::uint64_t what, std::uint64_t count);
  void end(std::uint64_t number);
  // Writes ring and boards (of all ranks) to `path`, anew.
  Status save(const std::string& path, const std::vector<const Board*>& boards) const;

 private:
  FlightRecorder(UniqueFd file, std::shared_ptr<Segment> segment)
      : file_(std::move(file)), segment_(std::move(segment)) {}
  FlightHeader& header() const { return *reinterpret_cast<FlightHeader*>(segment_->base()); }
  FlightEntry& entry(std::uint64_t number) const;

  UniqueFd file_;  // open, so that /proc/PID/fd leads to it
  std::shared_ptr<Segment> segment_;
};

}  // namespace treering
