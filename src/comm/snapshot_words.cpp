// Snapshots in words.
#include <cstdio>

#include "comm/snapshot.hpp"

namespace treering {
namespace {

std::string bytes_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

// Where its process can be seen from here: how it is.
std::string process_words(const RankSnapshot& board) {
  const bool visible =
      board.process_space != 0 && board.process_space == own_process_space() && board.pid > 0;
  if (!visible) return "";
  const std::string pid = std::to_string(board.pid);
  switch (process_state(board.pid)) {
    case ProcessState::kStopped:
      return "is stopped, by a signal such as SIGSTOP or by a debugger (kill -CONT " + pid +
             " lets it go on)";
    case ProcessState::kEnded:
      return "has ended (process " + pid + ")";
    case ProcessState::kStuckInKernel:
      return "is inside a system call that does not end (process " + pid +
             ", state D: a disk or a network file system)";
    case ProcessState::kRunning:
    case ProcessState::kSleeping:
    case ProcessState::kUnknown:
      break;
  }
  return "";
}

std::string elsewhere_words(const RankSnapshot& board) {
  const WaitElsewhere& e = *board.elsewhere;
  return "waits in another communicator, " + communicator_text(e.communicator) + ", in " +
         (e.operation == kNoOperation ? std::string("a send or receive")
                                      : "operation " + std::to_string(e.operation) + ", " +
                                            to_string(unpack(e.kind), e.count, board.size));
}

// The beginning: whoever wants all of it asks that rank.
std::string shortened(const std::string& cause) {
  constexpr std::size_t kMost = 160;
  return cause.size() <= kMost ? cause : cause.substr(0, kMost) + "...";
}

}  // namespace

std::string call_words(const PostedCall& call, int size) {
  return std::to_string(call.sequence) + ", " + to_string(unpack(call.kind), call.count, size);
}

std::string wait_words(const NotedWait& wait) {
  return "rank " + std::to_string(wait.peer) +
         (wait.for_room ? " has not received" : " has not sent") + " chunk " +
         std::to_string(wait.chunk) + " slice " + std::to_string(wait.slice) +
         (wait.for_room ? " or what was sent before it (no room on link " : " (message ") +
         (wait.for_room ? "" : std::to_string(wait.number) + " of link ") + to_string(wait.link) +
         ", " + algos::verb_name(wait.verb) + ", round " + std::to_string(wait.round) + ")";
}

std::string rank_words(const RankSnapshot& board, std::uint64_t operation) {
  switch (board.state) {
    case RankState::kFinalized:
      return "has left (destroyed its communicator)";
    case RankState::kAborted:
      return "has aborted the communicator";
    case RankState::kFailed:
      return "has failed: " + shortened(board.cause);
    case RankState::kForming:
    case RankState::kLive:
      break;
  }
  const std::string process = process_words(board);
  const PostedCall* const last = board.last_call();
  const std::string last_text =
      last == nullptr ? "none"
                      : call_words(*last, board.size) +
                            (board.completed > last->sequence ? ", completed" : ", not completed");
  if (operation != kNoOperation && board.issued <= operation) {
    std::string text = "has not called it (its last operation: " + last_text + ")";
    if (board.wait) return text + "; it waits here before: " + wait_words(*board.wait);
    if (board.elsewhere) return text + "; it " + elsewhere_words(board);
    if (!process.empty()) return text + " and " + process;
    return text + "; it is busy outside this communicator";
  }
  if (!process.empty()) return process + " (its last operation: " + last_text + ")";
  if (board.wait) {
    return "waits for rank " + std::to_string(board.wait->peer) + ": " + wait_words(*board.wait);
  }
  if (board.issued > board.completed) {
    return "is in operation " + last_text +
           ", and does not wait: it moves, or computes in an operator, or its thread gets no core";
  }
  if (board.elsewhere) return elsewhere_words(board);
  return "waits for nothing here" + (last == nullptr
                                         ? std::string(" and has called no operation yet")
                                         : "; its last operation: " + last_text);
}

std::string communicator_text(std::uint64_t communicator) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(communicator));
  return text;
}

std::string traffic_words(const LinkTraffic& traffic) {
  return to_string(traffic.link) + ": " + bytes_text(traffic.bytes) + " in " +
         std::to_string(traffic.messages) + (traffic.messages == 1 ? " message" : " messages");
}

}  // namespace treering
