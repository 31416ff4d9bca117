#include "transports/board_copy.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace treering {
namespace {

using Word = std::uint32_t;
static_assert(sizeof(Board) % sizeof(Word) == 0);

// A board is made of words and double words that are stored one by one. A double word that changes
// while its halves are copied is one of an entry with a guard, or a number that only reports show.
std::atomic_ref<Word> word_of(const Board& board, std::size_t at) {
  auto* const bytes = reinterpret_cast<std::byte*>(const_cast<Board*>(&board));
  return std::atomic_ref<Word>(*reinterpret_cast<Word*>(bytes + at));
}

void copy_words(const Board& from, Board& to, std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at < end; at += sizeof(Word)) {
    word_of(to, at).store(word_of(from, at).load(std::memory_order_acquire),
                          std::memory_order_release);
  }
}

// An entry whose first double word is its guard, 0 while the rest is written. It is the writer's
// protocol (Communicator::post_call) that is followed at `to`, and the reader's at `from`.
void copy_guarded(const Board& from, Board& to, const std::atomic<std::uint64_t>& guard,
                  std::size_t bytes) {
  const auto at = static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&guard) -
                                           reinterpret_cast<const std::byte*>(&from));
  auto& to_guard =
      *reinterpret_cast<std::atomic<std::uint64_t>*>(reinterpret_cast<std::byte*>(&to) + at);
  const std::uint64_t before = guard.load(std::memory_order_acquire);
  to_guard.store(0, std::memory_order_release);
  copy_words(from, to, at + sizeof guard, at + bytes);
  if (guard.load(std::memory_order_relaxed) == before)
    to_guard.store(before, std::memory_order_release);  // pairs with who reads the mirror
}

}  // namespace

void copy_board(const Board& from, Board& to) {
  // Pairs with on_failure: what the state speaks of was written before it.
  const RankState state = from.state.load(std::memory_order_acquire);
  std::size_t at = sizeof from.state;
  // Everything between the entries that have guards, in the order in which they lie.
  const auto guarded = [&](const std::atomic<std::uint64_t>& guard, std::size_t bytes) {
    const auto place = static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&guard) -
                                                reinterpret_cast<const std::byte*>(&from));
    copy_words(from, to, at, place);
    copy_guarded(from, to, guard, bytes);
    at = place + bytes;
  };
  guarded(from.wait.noted, sizeof from.wait);
  for (const BoardOp& op : from.ops) guarded(op.sequence, sizeof op);
  copy_words(from, to, at, offsetof(Board, cause));
  at = offsetof(Board, cause) + kCauseBytes;
  guarded(from.vote.guard, sizeof from.vote);
  guarded(from.mail.number, sizeof from.mail);
  copy_words(from, to, at, offsetof(Board, core));
  // The words of a failure are no atomics, and are there once the state says so.
  if (state == RankState::kFailed)
    copy_words(from, to, offsetof(Board, cause), offsetof(Board, cause) + kCauseBytes);
  to.state.store(state, std::memory_order_release);  // pairs with check_peers
}

}  // namespace treering
