// A board as plain data: what one rank was doing at one moment, and what follows from all of them.
//
// Reports of a communicator, the flight recorder and `treering status` are written from snapshots,
// so the same words are said inside and outside of the job. Everything here is a value; no thread
// needs anything of another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "algos/prims.hpp"
#include "comm/signature.hpp"
#include "core/link_id.hpp"
#include "core/status.hpp"
#include "transports/board.hpp"

namespace treering {

struct PostedCall {
  std::uint64_t sequence = 0;
  std::uint64_t kind = 0;  // packed
  std::uint64_t count = 0;
  std::uint64_t place = 0;  // packed; 0: of no importance
  std::uint64_t history = 0;
};

struct NotedWait {
  LinkId link;
  std::uint64_t number = 0;  // of the message
  std::uint64_t operation = kNoOperation;
  std::uint64_t round = 0;
  std::int32_t chunk = 0;
  std::uint32_t slice = 0;
  algos::Verb verb = algos::Verb::kCopy;
  bool for_room = false;
  int peer = -1;
  std::uint32_t looks = 0;
  std::uint64_t waited_ms = 0;
};

// Where the rank's thread waits, if in another communicator.
struct WaitElsewhere {
  std::uint64_t communicator = 0;
  std::uint64_t operation = kNoOperation;
  std::uint64_t kind = 0;  // packed
  std::uint64_t count = 0;
};

struct LinkTraffic {
  LinkId link;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

struct RankSnapshot {
  int rank = 0;
  int size = 0;
  RankState state = RankState::kForming;
  Code code = Code::kOk;
  int pid = 0;
  std::uint64_t communicator = 0;
  std::uint64_t process_space = 0;
  std::uint64_t issued = 0;
  std::uint64_t completed = 0;
  std::uint64_t moves = 0;
  std::optional<NotedWait> wait;  // nothing: it does not wait, or not for long
  std::optional<WaitElsewhere> elsewhere;
  std::vector<PostedCall> calls;  // by sequence
  std::vector<LinkTraffic> links;
  std::string cause;  // of a failure

  const PostedCall* call(std::uint64_t sequence) const;  // nullptr: not posted, or too old
  const PostedCall* last_call() const { return calls.empty() ? nullptr : &calls.back(); }
};

// What `board` shows of operation `sequence`; nothing if it is not there yet or no more.
std::optional<PostedCall> posted(const Board& board, std::uint64_t sequence);
// The wait that the board shows, unless the rank has moved since.
std::optional<NotedWait> noted_wait(const Board& board);
RankSnapshot take_snapshot(const Board& board);
// Of the machine's steady clock, which all processes share.
std::uint64_t steady_ms();

// Which processes `pid`s name: those of this boot of this machine, in this process's pid namespace.
// 0 if it cannot be found out.
std::uint64_t own_process_space();

enum class ProcessState { kUnknown, kRunning, kSleeping, kStuckInKernel, kStopped, kEnded };
// As /proc says; kUnknown for 0 and where the number names nothing here.
ProcessState process_state(int pid);

// Who keeps `rank` waiting: rank, the one that it waits for, the one that that one waits for, ...
// to the last, which waits for nobody, or, in a cycle, to the first that comes a second time.
// boards: by rank.
struct WaitChain {
  std::vector<int> ranks;
  bool is_cycle = false;
  int root() const { return ranks.back(); }
};
WaitChain wait_chain(const std::vector<RankSnapshot>& boards, int rank);
// All ranks whose chain ends at `root`, but root itself unless it is part of a cycle.
std::vector<int> ranks_behind(const std::vector<RankSnapshot>& boards, int root);

// "412, all_reduce of 1024 float32, sum"
std::string call_words(const PostedCall& call, int size);
// "rank 2 has not sent chunk 5 slice 1 (message 77 of link 2->3, round 3)"
std::string wait_words(const NotedWait& wait);
// 16 hexadecimal digits.
std::string communicator_text(std::uint64_t communicator);
// What the rank is doing: "has left", "is stopped (...)", "waits for rank 3", "has not called it
// (its last operation: ...)". operation: the one that others wait in; kNoOperation: none of all.
std::string rank_words(const RankSnapshot& board, std::uint64_t operation);
// "2->3: 1.5 MiB in 12 messages"
std::string traffic_words(const LinkTraffic& traffic);

}  // namespace treering
