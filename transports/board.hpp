// The board: one rank's public notice in memory that its peers read when something takes too long.
//
// Written by its rank only, with relaxed stores on the call path (a few nanoseconds); read by peers
// on their slow path, and by `treering status` from outside: to name who died, failed, left or
// never came, and what each rank was doing. It is made of 64-bit words and smaller ones, has no
// pointer, and no reader writes to it: a copy of its words, one after another, is as good as the
// board, so that a rank on another host can be mirrored.
//
// `state` is stored with release, after code and cause; peers read it with acquire. The transport
// fills in pid when it makes the segment; everything else is the communicator's. comm/snapshot.hpp
// reads a board as a whole.
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
  // A hash of this call and all before it: equal on two ranks if they called the same so far.
  std::atomic<std::uint64_t> history;
};
inline constexpr int kBoardOps = 16;
inline constexpr int kBoardLinks = 8;
inline constexpr int kCauseBytes = 512;

// What the rank waits for, noted on the slow path of a wait. It is over as soon as the rank has
// moved, so nobody need clear it: it holds while Board::moves is what it was.
struct BoardWait {
  std::atomic<std::uint64_t> noted;      // moves + 1, stored last; 0: being written, or never was
  std::atomic<std::uint64_t> link;       // LinkId packed by comm/signature.hpp
  std::atomic<std::uint64_t> number;     // of the message
  std::atomic<std::uint64_t> operation;  // its number; kNoOperation: a send or receive
  std::atomic<std::uint64_t> round;
  std::atomic<std::int32_t> chunk;
  std::atomic<std::uint32_t> slice;
  std::atomic<std::uint32_t> verb;
  std::atomic<std::uint32_t> for_room;  // 1: the link is full; 0: the message is not there
  std::atomic<std::int32_t> peer;       // who has not sent, or not received
  std::atomic<std::uint32_t> looks;     // grows while the rank waits; stands still if it is stopped
  std::atomic<std::uint64_t> waited_ms;
};

// The thread that made this communicator waits in another one; noted on the slow path of that wait,
// again and again, and believed for kElsewhereMs after the last time.
struct BoardElsewhere {
  std::atomic<std::uint64_t> communicator;
  std::atomic<std::uint64_t> operation;  // its number there; kNoOperation: a send or receive
  std::atomic<std::uint64_t> what;       // packed by comm/signature.hpp
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> noted_ms;  // on the machine's steady clock; 0: never
};
inline constexpr std::uint64_t kElsewhereMs = 1000;
inline constexpr std::uint64_t kNoOperation = ~std::uint64_t{0};

// What has moved over a link so far, as its end at this rank counts; noted together with a wait.
struct BoardLink {
  std::atomic<std::uint64_t> link;  // 0: no entry
  std::atomic<std::uint64_t> messages;
  std::atomic<std::uint64_t> bytes;
};

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
  std::atomic<std::int32_t> rank;
  std::atomic<std::int32_t> size;
  std::atomic<std::uint32_t> bytes;         // sizeof(Board): of the build that wrote it
  std::atomic<std::uint64_t> magic;         // kBoardMagic, once the entries above are there
  std::atomic<std::uint64_t> communicator;  // a random number, the same on all its ranks
  std::atomic<std::uint64_t>
      process_space;                     // two pids mean the same if these are equal; 0: unknown
  std::atomic<std::uint64_t> issued;     // operations issued
  std::atomic<std::uint64_t> completed;  // operations completed
  // Slices that the rank has handled, of any operation: it grows while anything moves.
  std::atomic<std::uint64_t> moves;
  BoardWait wait;
  BoardElsewhere elsewhere;
  BoardOp ops[kBoardOps];
  BoardLink links[kBoardLinks];
  char cause[kCauseBytes];  // of the failure, in words; ends in 0; written once, before state
  std::atomic<std::uint32_t> left;  // 1: destroyed its communicator, whatever became of it
  BoardVote vote;
  BoardMail mail;
  std::atomic<std::uint64_t> mail_read;  // number of the last packet that it has read of everybody
  // Where the rank last waited: its core's number + 1; 0: nowhere yet. In a line of its own: peers
  // read it in every wait, and it seldom changes.
  alignas(64) std::atomic<std::int32_t> core;
};
inline constexpr std::uint64_t kBoardMagic = 0x3130'6472'616f'6254;  // "Tboard01"

}  // namespace treering
