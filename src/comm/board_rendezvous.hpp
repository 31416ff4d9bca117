// Meeting over the boards of a communicator that has failed: all that its survivors still share.
//
// Boards lie in memory that outlives its rank, and their words are the only thing that is not
// spoiled by what was in flight: links are. So what the survivors agree on (BoardVote) and what
// they tell each other to make a new communicator (BoardMail) goes over boards, and needs no store,
// no socket and no thread, wherever the store of the old communicator was.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "comm/agreement.hpp"
#include "core/deadline.hpp"
#include "core/status.hpp"
#include "transports/board.hpp"

namespace treering {

// Any thread may read while the owner writes.
void store_vote(BoardVote& board, const Vote& vote);
// Leaves *vote as it is where the rank has published nothing yet, or is just writing.
void load_vote(const BoardVote& board, int size, Vote* vote);

// Over `members` of `boards`, this rank among them; the index is the rank here.
class BoardRendezvous final : public Rendezvous {
 public:
  // What every wait asks from time to time: an error ends it. `member`: the rank waited for, of the
  // old communicator.
  using Check = std::function<Status(int member)>;
  // Sees that the others learn what has changed on the own board.
  using Push = std::function<void()>;

  // boards: of all ranks of the old communicator. attempt: the same number on all members, greater
  // than that of every attempt before; all members have left that one.
  BoardRendezvous(std::vector<Board*> boards, std::vector<int> members, int own_rank,
                  std::uint64_t attempt, Check check, Push push, const Secret& old_link_key);
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  Result<std::vector<std::string>> all_gather(const std::string& blob) override;
  // One of the members is lost, or the check says otherwise that there is no use in waiting.
  bool interrupted() const override;
  Secret link_key() const override { return link_key_; }

 private:
  // One packet of each member, at most kMailBytes: this rank's out, the others' appended to `all`.
  Status exchange_packets(const char* data, std::size_t bytes, std::vector<std::string>& all);
  Status wait(const std::atomic<std::uint64_t>& word, int member);

  std::vector<Board*> boards_;
  std::vector<int> members_;
  Check check_;
  Push push_;
  int rank_ = 0;
  Secret link_key_;
  std::uint64_t packet_;  // number of the last one: the attempt, then 20 bits for its packets
};

}  // namespace treering
