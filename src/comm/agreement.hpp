// Agreement: the survivors of a communicator decide, round by round, who is out and whether what
// they tried was spoiled.
//
// Each rank publishes a Vote, which only it writes, and reads those of the others. Nobody leads, so
// nobody's death stops it. No clock, no I/O, no threads in here: a pure state machine, which
// tests/unit/agreement_test.cpp walks through all orders of looks and deaths.
//
// A round. A rank's opinion is a set of ranks that are out, and a flag. It takes over what the
// others say (union, or), but not from a rank that it has put out itself. A rank decides
//   (a) when all ranks that are not in its set have published exactly its opinion, or
//   (b) when a rank that it has not put out says that the round is decided: then the same.
// Whoever has decided never changes its opinion in that round.
//
// Why two ranks that live on never decide differently. Let A have decided D by (a). Another opinion
// D' is decided by (a) only if everybody not in D' publishes it. A does not, so A is in D':
// somebody took A for ended, or was told to go on without it. Ranks that have put A out ignore what
// it says; one that has not, and takes D over by (b), publishes D from then on and blocks D' in its
// turn. So either all survivors come to D, or none of them has heard of it. `ended` is looked at
// before the votes are read, and memory outlives its rank: who sees that A has ended sees A's last
// words, too. So a rank may leave as soon as it has decided.
//
// This rests on a rank that is said to have ended having ended. Where the network is cut in two,
// each side decides for itself (TCP; in shared memory the kernel says who has ended).
#pragma once

#include <cstdint>
#include <vector>

#include "comm/rank_set.hpp"

namespace treering {

// What one rank publishes.
struct Vote {
  std::uint64_t round = 0;    // 0: takes no part yet
  std::uint64_t spoiled = 0;  // the last round for which it says "spoiled"
  std::uint64_t decided_round = 0;
  std::uint64_t decided_spoiled = 0;  // the last round that was decided to be spoiled
  RankSet out;
  RankSet decided_out;
  auto operator<=>(const Vote&) const = default;
};

class Agreement {
 public:
  Agreement(int rank, int size);

  // Opens the next round. Requires that there is none, or that it is decided. Who is out stays out.
  void propose(const RankSet& out, bool spoiled);
  // In an open round: these are out as well.
  void put_out(const RankSet& out) { mine_.out.merge(out); }

  // ended: who has ended, as known before the votes were read. votes: everybody's, by rank; the own
  // one is not looked at. True: the round is decided, or this rank itself is out. vote() must be
  // published after each look, and after propose.
  bool look(const RankSet& ended, const std::vector<Vote>& votes);

  const Vote& vote() const { return mine_; }
  std::uint64_t round() const { return mine_.round; }
  bool is_open() const { return mine_.round != mine_.decided_round; }
  bool is_out() const { return mine_.out.has(rank_); }
  // Of the last round that was decided.
  const RankSet& out() const { return mine_.decided_out; }
  bool spoiled() const { return mine_.decided_spoiled == mine_.decided_round; }
  // Who has not come to this round, by the votes of the last look.
  const std::vector<int>& missing() const { return missing_; }

 private:
  bool adopt(const std::vector<Vote>& votes);
  void decide(const RankSet& out, bool spoiled);

  int rank_;
  int size_;
  Vote mine_;
  std::vector<int> missing_;
};

}  // namespace treering
