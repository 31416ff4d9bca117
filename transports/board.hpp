// The board: one rank's public notice in memory that its peers read when something takes too long.
//
// Written by its rank only, with relaxed stores on the call path (a few nanoseconds); read by peers
// on their slow path: to name who died, failed, left or never came, and what each rank was doing.
// `state` is stored with release, after code and cause; peers read it with acquire. The transport
// fills in pid when it makes the segment; everything else is the communicator's.
#pragma once

#include <atomic>
#include <cstdint>

namespace treering {

enum class RankState : std::uint32_t {
  kForming = 0,  // the segment exists, init is not complete
  kLive = 1,
  kFinalized = 2,  // destroyed its communicator after all its operations were done
  kFailed = 3,     // code and cause say why
  kAborted = 4,
};

// What was called, for reports: one entry per operation, the last kBoardOps of them.
struct BoardOp {
  std::atomic<std::uint64_t> sequence;  // number of the operation + 1; 0 = never used
  std::atomic<std::uint64_t> what;      // packed by comm/signature.hpp
  std::atomic<std::uint64_t> count;
  // Packed by comm/signature.hpp: where the buffer lies that peers reach, if that must be the same
  // on all ranks; else 0.
  std::atomic<std::uint64_t> place;
};
inline constexpr int kBoardOps = 16;
inline constexpr int kCauseBytes = 512;

struct alignas(64) Board {
  std::atomic<RankState> state;
  std::atomic<std::uint32_t> code;  // treering::Code of the failure
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint64_t> issued;        // operations issued
  std::atomic<std::uint64_t> completed;     // operations completed
  std::atomic<std::uint64_t> waiting_link;  // LinkId packed by comm/signature.hpp; 0 = not waiting
  std::atomic<std::uint64_t> waiting_number;  // message number awaited there
  BoardOp ops[kBoardOps];
  char cause[kCauseBytes];  // of the failure, in words; ends in 0; written once, before state
  // Where the rank last waited: its core's number + 1; 0: nowhere yet. In a line of its own: peers
  // read it in every wait, and it seldom changes.
  alignas(64) std::atomic<std::int32_t> core;
};

}  // namespace treering
