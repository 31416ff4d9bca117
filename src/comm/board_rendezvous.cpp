#include "comm/board_rendezvous.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/backoff.hpp"

namespace treering {
namespace {

// Release and acquire at each word: what is read is never newer than the guard that is read after
// it.
void store_set(std::atomic<std::uint64_t>* words, const RankSet& set) {
  for (std::size_t i = 0; i < set.words().size(); ++i) {
    words[i].store(set.words()[i], std::memory_order_release);  // pairs with load_set
  }
}

RankSet load_set(const std::atomic<std::uint64_t>* words, int size) {
  RankSet set(size);
  for (std::size_t i = 0; i < set.words().size(); ++i) {
    set.words()[i] = words[i].load(std::memory_order_acquire);  // pairs with store_set
  }
  return set;
}

}  // namespace

void store_vote(BoardVote& board, const Vote& vote) {
  const std::uint64_t guard = board.guard.load(std::memory_order_relaxed);
  board.guard.store(0, std::memory_order_relaxed);
  // All of these pair with load_vote.
  board.round.store(vote.round, std::memory_order_release);
  board.spoiled.store(vote.spoiled, std::memory_order_release);
  board.decided_round.store(vote.decided_round, std::memory_order_release);
  board.decided_spoiled.store(vote.decided_spoiled, std::memory_order_release);
  store_set(board.out, vote.out);
  store_set(board.decided_out, vote.decided_out);
  board.guard.store(guard + 1, std::memory_order_release);
}

void load_vote(const BoardVote& board, int size, Vote* vote) {
  const std::uint64_t guard = board.guard.load(std::memory_order_acquire);  // pairs with store_vote
  if (guard == 0) return;
  Vote read;
  read.round = board.round.load(std::memory_order_acquire);
  read.spoiled = board.spoiled.load(std::memory_order_acquire);
  read.decided_round = board.decided_round.load(std::memory_order_acquire);
  read.decided_spoiled = board.decided_spoiled.load(std::memory_order_acquire);
  read.out = load_set(board.out, size);
  read.decided_out = load_set(board.decided_out, size);
  if (board.guard.load(std::memory_order_relaxed) == guard) *vote = std::move(read);
}

BoardRendezvous::BoardRendezvous(std::vector<Board*> boards, std::vector<int> members, int own_rank,
                                 std::uint64_t attempt, Check check, Push push,
                                 const Secret& old_link_key)
    : boards_(std::move(boards)),
      members_(std::move(members)),
      check_(std::move(check)),
      push_(std::move(push)),
      packet_(attempt << 20) {
  rank_ =
      static_cast<int>(std::find(members_.begin(), members_.end(), own_rank) - members_.begin());
  std::string name = "tr_comm_shrink " + std::to_string(attempt);
  for (int member : members_) name += " " + std::to_string(member);
  link_key_ = derive_secret(old_link_key, name);
}

Status BoardRendezvous::wait(const std::atomic<std::uint64_t>& word, int member) {
  Spin spin(0);
  Backoff backoff(spin);
  while (word.load(std::memory_order_acquire) < packet_) {  // pairs with exchange_packets
    if (backoff.pause()) TR_RETURN_IF_ERROR(check_(member));
  }
  return {};
}

bool BoardRendezvous::interrupted() const {
  return std::ranges::any_of(members_, [this](int member) { return !check_(member).ok(); });
}

Status BoardRendezvous::exchange_packets(const char* data, std::size_t bytes,
                                         std::vector<std::string>& all) {
  ++packet_;
  BoardMail& mine = boards_[members_[rank_]]->mail;
  mine.number.store(0, std::memory_order_relaxed);
  mine.bytes = static_cast<std::uint32_t>(bytes);
  std::memcpy(mine.data, data, bytes);
  mine.number.store(packet_, std::memory_order_release);  // pairs with wait
  push_();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const BoardMail& theirs = boards_[members_[i]]->mail;
    TR_RETURN_IF_ERROR(wait(theirs.number, members_[i]));
    all[i].append(theirs.data, std::min<std::size_t>(theirs.bytes, kMailBytes));
  }
  boards_[members_[rank_]]->mail_read.store(packet_, std::memory_order_release);  // pairs with wait
  push_();
  // Nobody may write its next packet before all have read this one.
  for (const int member : members_) {
    TR_RETURN_IF_ERROR(wait(boards_[member]->mail_read, member));
  }
  return {};
}

// Lengths first, then as many packets as the longest blob takes.
Result<std::vector<std::string>> BoardRendezvous::all_gather(const std::string& blob) {
  const auto length = static_cast<std::uint64_t>(blob.size());
  std::vector<std::string> lengths(members_.size()), blobs(members_.size());
  TR_RETURN_IF_ERROR(
      exchange_packets(reinterpret_cast<const char*>(&length), sizeof length, lengths));
  std::uint64_t longest = 0;
  for (const std::string& text : lengths) {
    std::uint64_t one = 0;
    if (text.size() != sizeof one) return remote_error("a rank goes on without this one");
    std::memcpy(&one, text.data(), sizeof one);
    longest = std::max(longest, one);
  }
  for (std::uint64_t at = 0; at < longest; at += kMailBytes) {
    const std::size_t bytes = at < length ? std::min<std::uint64_t>(kMailBytes, length - at) : 0;
    TR_RETURN_IF_ERROR(exchange_packets(blob.data() + std::min(at, length), bytes, blobs));
  }
  return blobs;
}

}  // namespace treering
