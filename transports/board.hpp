// The board: one rank's public notice in memory that its peers read when something takes too long.
//
// Written by its rank only, with relaxed stores on the call path (a few nanoseconds); read by peers
// on their slow path: to name who died, failed, left or never came, and what each rank was doing.
// `state` is stored with release, after code and cause; peers read it with acquire. The transport
// fills in pid when it makes the segment; everything else is the communicator's.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/config.hpp"

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

// What a rank says while the survivors of a communicator agree on who is out (comm/agreement.hpp
// states the rules). Written and read as a whole: `guard`, the first double word, is 0 while the
// rest is being written, and greater after each change.
inline constexpr int kVoteWords = kMaxRanks / 64;
struct BoardVote {
  std::atomic<std::uint64_t> guard;
  std::atomic<std::uint64_t> round;          // that it takes part in; 0: none yet
  std::atomic<std::uint64_t> spoiled;        // the last round for which it said "spoiled"
  std::atomic<std::uint64_t> decided_round;  // the last one whose end it knows
  std::atomic<std::uint64_t> decided_spoiled;
  std::atomic<std::uint64_t> out[kVoteWords];  // bit r: rank r is out
  std::atomic<std::uint64_t> decided_out[kVoteWords];
};

// One packet at a time from this rank to all that take part (comm/board_rendezvous.hpp). `number`
// guards the rest: 0 while it is written. It is written anew only when all have read it.
inline constexpr int kMailBytes = 1024;
struct BoardMail {
  std::atomic<std::uint64_t> number;  // of the packet that is here
  std::uint32_t bytes;
  char data[kMailBytes];
};

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
  std::atomic<std::uint32_t> left;  // 1: destroyed its communicator, whatever became of it
  BoardVote vote;
  BoardMail mail;
  std::atomic<std::uint64_t> mail_read;  // number of the last packet that it has read of everybody
  // Where the rank last waited: its core's number + 1; 0: nowhere yet. In a line of its own: peers
  // read it in every wait, and it seldom changes.
  alignas(64) std::atomic<std::int32_t> core;
};

}  // namespace treering
