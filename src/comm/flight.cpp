#include "comm/flight.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <unistd.h>
#include <utility>

#include "transports/board_copy.hpp"

namespace treering {
namespace {

constexpr std::size_t kPage = 4096;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

// A file that is closed whatever happens.
struct FileCloser {
  void operator()(std::FILE* f) const { std::fclose(f); }
};

}  // namespace

Result<std::unique_ptr<FlightRecorder>> FlightRecorder::make(std::uint64_t communicator, int rank,
                                                             int size, std::uint32_t capacity) {
  const std::size_t wanted = sizeof(FlightHeader) + std::size_t{capacity} * sizeof(FlightEntry);
  const std::size_t bytes = (wanted + kPage - 1) / kPage * kPage;
  TR_ASSIGN_OR_RETURN(UniqueFd file, create_memory_file(bytes));
  TR_ASSIGN_OR_RETURN(std::shared_ptr<Segment> segment, Segment::map(file.get(), bytes));
  TR_RETURN_IF_ERROR(make_resident(segment->base(), bytes));
  std::unique_ptr<FlightRecorder> recorder(new FlightRecorder(std::move(file), std::move(segment)));
  FlightHeader& header = recorder->header();
  header.communicator = communicator;
  header.rank = rank;
  header.size = size;
  header.pid = ::getpid();
  header.capacity = capacity;
  header.board_bytes = sizeof(Board);
  header.magic.store(kFlightMagic, std::memory_order_release);  // pairs with readers outside
  return recorder;
}

FlightEntry& FlightRecorder::entry(std::uint64_t number) const {
  auto* const first = reinterpret_cast<FlightEntry*>(segment_->base() + sizeof(FlightHeader));
  return first[number % header().capacity];
}

std::uint64_t FlightRecorder::begin(std::uint64_t sequence, std::uint64_t what,
                                    std::uint64_t count) {
  const std::uint64_t number = header().written.load(std::memory_order_relaxed);
  FlightEntry& e = entry(number);
  e.number.store(0, std::memory_order_relaxed);
  e.sequence.store(sequence, std::memory_order_release);
  e.what.store(what, std::memory_order_release);
  e.count.store(count, std::memory_order_release);
  e.begin_ns.store(now_ns(), std::memory_order_release);
  e.end_ns.store(0, std::memory_order_release);
  e.number.store(number + 1, std::memory_order_release);  // pairs with readers outside
  header().written.store(number + 1, std::memory_order_release);
  return number;
}

void FlightRecorder::end(std::uint64_t number) {
  FlightEntry& e = entry(number);
  if (e.number.load(std::memory_order_relaxed) != number + 1) return;  // overtaken
  e.end_ns.store(now_ns(), std::memory_order_release);
}

Status FlightRecorder::save(const std::string& path,
                            const std::vector<const Board*>& boards) const {
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "wbe"));
  if (file == nullptr) return system_error("cannot write the flight record " + path, errno);
  FlightHeader head;
  head.magic.store(kFlightMagic, std::memory_order_relaxed);
  head.communicator = header().communicator;
  head.rank = header().rank;
  head.size = header().size;
  head.pid = header().pid;
  head.capacity = header().capacity;
  head.boards = static_cast<std::uint32_t>(boards.size());
  head.board_bytes = sizeof(Board);
  head.written.store(header().written.load(std::memory_order_acquire), std::memory_order_relaxed);
  std::size_t done = std::fwrite(&head, sizeof head, 1, file.get());
  const auto copy = std::make_unique<Board>();
  for (std::uint32_t i = 0; i < header().capacity; ++i) {
    // Another thread may be in a call of this rank.
    const FlightEntry& e = entry(i);
    const std::uint64_t words[] = {
        e.number.load(std::memory_order_acquire),   e.sequence.load(std::memory_order_acquire),
        e.what.load(std::memory_order_acquire),     e.count.load(std::memory_order_acquire),
        e.begin_ns.load(std::memory_order_acquire), e.end_ns.load(std::memory_order_acquire)};
    static_assert(sizeof words == sizeof(FlightEntry));
    done += std::fwrite(words, sizeof words, 1, file.get());
  }
  for (const Board* board : boards) {
    copy_board(*board, *copy);
    done += std::fwrite(copy.get(), sizeof(Board), 1, file.get());
  }
  if (done != 1 + std::size_t{header().capacity} + boards.size() || std::fflush(file.get()) != 0)
    return system_error("cannot write the flight record " + path, errno);
  return {};
}

}  // namespace treering
