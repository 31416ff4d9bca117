#include "cli/status/record.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "comm/flight.hpp"

namespace treering::status {

std::optional<FlightLog> flight_log(const std::byte* base, std::size_t bytes) {
  if (bytes < sizeof(FlightHeader)) return std::nullopt;
  const auto& header = *reinterpret_cast<const FlightHeader*>(base);
  const std::size_t room = (bytes - sizeof header) / sizeof(FlightEntry);
  if (header.magic.load(std::memory_order_acquire) != kFlightMagic || header.capacity == 0 ||
      header.capacity > room || header.board_bytes != sizeof(Board))
    return std::nullopt;
  const auto* const entries = reinterpret_cast<const FlightEntry*>(base + sizeof header);
  FlightLog log;
  log.rank = header.rank;
  const std::uint64_t written = header.written.load(std::memory_order_acquire);
  const std::uint64_t first = written > header.capacity ? written - header.capacity : 0;
  for (std::uint64_t n = first; n < written; ++n) {
    const FlightEntry& e = entries[n % header.capacity];
    if (e.number.load(std::memory_order_acquire) != n + 1) continue;  // pairs with begin
    const FlightCall call{n,
                          e.sequence.load(std::memory_order_acquire),
                          e.what.load(std::memory_order_acquire),
                          e.count.load(std::memory_order_acquire),
                          e.begin_ns.load(std::memory_order_acquire),
                          e.end_ns.load(std::memory_order_acquire)};
    if (e.number.load(std::memory_order_relaxed) == n + 1) log.calls.push_back(call);
  }
  return log;
}

Result<Job> read_record(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return system_error("cannot read '" + path + "'", errno);
  // Where atomics and boards may lie.
  constexpr std::size_t kLine = 64;
  std::vector<std::byte> room(text.size() + kLine);
  void* at = room.data();
  std::size_t space = room.size();
  auto* const base = static_cast<std::byte*>(std::align(kLine, text.size(), at, space));
  std::memcpy(base, text.data(), text.size());
  std::optional<FlightLog> log = flight_log(base, text.size());
  const auto& header = *reinterpret_cast<const FlightHeader*>(base);
  const std::size_t head =
      log ? sizeof(FlightHeader) + std::size_t{header.capacity} * sizeof(FlightEntry) : 0;
  if (!log || header.boards > (text.size() - head) / sizeof(Board)) {
    return invalid_argument("'" + path +
                            "' is no flight record of this version of Treering, or is cut short");
  }
  Job job;
  job.communicator = header.communicator;
  job.size = header.size;
  job.ranks.resize(header.boards);
  job.flights.push_back(std::move(*log));
  for (std::size_t r = 0; r < header.boards; ++r) {
    alignas(Board) std::byte copy[sizeof(Board)];
    std::memcpy(copy, base + head + r * sizeof(Board), sizeof(Board));
    RankSnapshot s = take_snapshot(*reinterpret_cast<const Board*>(copy));
    if (s.rank != static_cast<int>(r) || s.size != job.size) continue;  // never came so far
    s.process_space = 0;  // who has this number now is another
    job.ranks[r] = std::move(s);
  }
  job.size = static_cast<int>(job.ranks.size());
  return job;
}

}  // namespace treering::status
