#include "comm/snapshot.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <sys/stat.h>

namespace treering {
namespace {

// Written by its rank while it is read: entries are taken as they are, and whoever wrote in between
// is asked again a few times.
constexpr int kTries = 4;

}  // namespace

const PostedCall* RankSnapshot::call(std::uint64_t sequence) const {
  const auto it = std::find_if(calls.begin(), calls.end(),
                               [&](const PostedCall& c) { return c.sequence == sequence; });
  return it == calls.end() ? nullptr : &*it;
}

std::optional<PostedCall> posted(const Board& board, std::uint64_t sequence) {
  const BoardOp& entry = board.ops[sequence % kBoardOps];
  if (entry.sequence.load(std::memory_order_acquire) != sequence + 1)
    return std::nullopt;  // pairs with post_call
  const PostedCall call{sequence, entry.what.load(std::memory_order_acquire),
                        entry.count.load(std::memory_order_acquire),
                        entry.place.load(std::memory_order_acquire),
                        entry.history.load(std::memory_order_acquire)};
  if (entry.sequence.load(std::memory_order_relaxed) != sequence + 1) return std::nullopt;
  return call;
}

std::optional<NotedWait> noted_wait(const Board& board) {
  const BoardWait& w = board.wait;
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t noted = w.noted.load(std::memory_order_acquire);  // pairs with note_wait
    if (noted == 0) continue;
    if (noted != board.moves.load(std::memory_order_acquire) + 1) return std::nullopt;
    NotedWait wait;
    wait.link = unpack_link(w.link.load(std::memory_order_acquire));
    wait.number = w.number.load(std::memory_order_acquire);
    wait.operation = w.operation.load(std::memory_order_acquire);
    wait.round = w.round.load(std::memory_order_acquire);
    wait.chunk = w.chunk.load(std::memory_order_acquire);
    wait.slice = w.slice.load(std::memory_order_acquire);
    wait.verb = static_cast<algos::Verb>(w.verb.load(std::memory_order_acquire));
    wait.for_room = w.for_room.load(std::memory_order_acquire) != 0;
    wait.peer = w.peer.load(std::memory_order_acquire);
    wait.looks = w.looks.load(std::memory_order_acquire);
    wait.waited_ms = w.waited_ms.load(std::memory_order_acquire);
    if (w.noted.load(std::memory_order_relaxed) == noted) return wait;
  }
  return std::nullopt;
}

RankSnapshot take_snapshot(const Board& board) {
  RankSnapshot s;
  // Pairs with the release of the state's writer: code and cause are there.
  s.state = board.state.load(std::memory_order_acquire);
  s.code = static_cast<Code>(board.code.load(std::memory_order_relaxed));
  s.pid = board.pid.load(std::memory_order_relaxed);
  s.rank = board.rank.load(std::memory_order_relaxed);
  s.size = board.size.load(std::memory_order_relaxed);
  s.communicator = board.communicator.load(std::memory_order_relaxed);
  s.process_space = board.process_space.load(std::memory_order_relaxed);
  s.completed = board.completed.load(std::memory_order_acquire);
  s.issued = board.issued.load(std::memory_order_acquire);
  s.moves = board.moves.load(std::memory_order_relaxed);
  s.wait = noted_wait(board);
  const BoardElsewhere& e = board.elsewhere;
  const std::uint64_t noted = e.noted_ms.load(std::memory_order_acquire);  // pairs with note_wait
  const std::uint64_t now = steady_ms();
  if (noted != 0 && noted + kElsewhereMs > now && noted < now + kElsewhereMs) {
    s.elsewhere = WaitElsewhere{
        e.communicator.load(std::memory_order_relaxed), e.operation.load(std::memory_order_relaxed),
        e.what.load(std::memory_order_relaxed), e.count.load(std::memory_order_relaxed)};
  }
  const std::uint64_t first = s.issued > kBoardOps ? s.issued - kBoardOps : 0;
  for (std::uint64_t sequence = first; sequence < s.issued; ++sequence) {
    if (const std::optional<PostedCall> call = posted(board, sequence)) s.calls.push_back(*call);
  }
  for (const BoardLink& link : board.links) {
    const std::uint64_t id = link.link.load(std::memory_order_acquire);
    if (id == 0) break;
    s.links.push_back({unpack_link(id), link.messages.load(std::memory_order_relaxed),
                       link.bytes.load(std::memory_order_relaxed)});
  }
  if (s.state == RankState::kFailed) {
    s.cause.assign(board.cause, ::strnlen(board.cause, kCauseBytes));
  }
  return s;
}

std::uint64_t steady_ms() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

std::uint64_t own_process_space() {
  static const std::uint64_t space = [] {
    std::string boot;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, boot);
    struct stat info {};
    if (boot.empty() || ::stat("/proc/self/ns/pid", &info) != 0) return std::uint64_t{0};
    return static_cast<std::uint64_t>(
               std::hash<std::string>{}(boot + "/" + std::to_string(info.st_ino))) |
           1;
  }();
  return space;
}

ProcessState process_state(int pid) {
  if (pid <= 0) return ProcessState::kUnknown;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) {
    return ::kill(pid, 0) != 0 && errno == ESRCH ? ProcessState::kEnded : ProcessState::kUnknown;
  }
  const std::size_t end_of_name = line.rfind(')');  // the name may hold anything
  if (end_of_name == std::string::npos || end_of_name + 2 >= line.size())
    return ProcessState::kUnknown;
  switch (line[end_of_name + 2]) {
    case 'R':
      return ProcessState::kRunning;
    case 'T':
    case 't':
      return ProcessState::kStopped;
    case 'D':
      return ProcessState::kStuckInKernel;
    case 'Z':
    case 'X':
      return ProcessState::kEnded;
    default:
      return ProcessState::kSleeping;
  }
}

WaitChain wait_chain(const std::vector<RankSnapshot>& boards, int rank) {
  WaitChain chain;
  std::vector<bool> seen(boards.size(), false);
  for (int r = rank;;) {
    chain.ranks.push_back(r);
    const auto i = static_cast<std::size_t>(r);
    if (seen[i]) {
      chain.is_cycle = true;
      return chain;
    }
    seen[i] = true;
    const bool waits = boards[i].wait && boards[i].state <= RankState::kLive;
    const int next = waits ? boards[i].wait->peer : -1;
    if (next < 0 || next >= static_cast<int>(boards.size())) return chain;
    r = next;
  }
}

std::vector<int> ranks_behind(const std::vector<RankSnapshot>& boards, int root) {
  std::vector<int> behind;
  for (int r = 0; r < static_cast<int>(boards.size()); ++r) {
    const WaitChain chain = wait_chain(boards, r);
    const bool meets =
        std::find(chain.ranks.begin() + 1, chain.ranks.end(), root) != chain.ranks.end();
    if (chain.ranks.size() > 1 && meets) behind.push_back(r);
  }
  return behind;
}

}  // namespace treering
