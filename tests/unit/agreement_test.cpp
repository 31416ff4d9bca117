// The agreement of the survivors, in all orders of looks, words on their way and deaths.
#include "comm/agreement.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace treering {
namespace {

// What the ranks of a communicator do, as small a step at a time as they can be told apart: a rank
// notes who has ended, then reads the votes one by one, then thinks and publishes. Between any two
// of these anything may happen elsewhere. A round that is decided is followed by the next, in which
// a rank says "spoiled" if it chooses to (as one whose attempt failed), up to the last one; then it
// leaves.
constexpr std::uint64_t kMostRounds = 2;

struct RankState {
  explicit RankState(int rank, int n)
      : agreement(rank, n), ended(n), seen(static_cast<std::size_t>(n)) {
    for (Vote& v : seen) v.out = v.decided_out = RankSet(n);
  }
  Agreement agreement;
  RankSet ended;             // as noted for this look
  std::vector<Vote> seen;    // the votes that this look has read so far
  int next = -1;             // whom it reads next; -1: it has not begun a look
  bool dead = false;         // killed
  bool left = false;         // done with all rounds
  bool gave_up = false;      // it found that it is out
  std::vector<Vote> mirror;  // over a network: what of the others' votes has come here
};

// How a rank comes to the votes of the others.
enum class Way {
  kWhole,   // memory; a look is one step
  kMemory,  // memory; each part of a look is a step of its own
  kMirror,  // a network: votes arrive some time, those of a rank that dies perhaps never. A look is
            // one step. A rank that leaves has its last words delivered first, as TCP does.
};

struct World {
  std::vector<RankState> ranks;
  std::vector<Vote> boards;
  std::map<std::pair<int, std::uint64_t>, std::pair<RankSet, bool>> decisions;  // (rank, round)
  int deaths_left = 0;
};

std::string key_of(const World& w) {
  std::string key;
  const auto put = [&key](std::uint64_t v) { key.append(1, static_cast<char>(v)); };
  const auto put_vote = [&](const Vote& v) {
    for (const std::uint64_t x : {v.round, v.spoiled, v.decided_round, v.decided_spoiled,
                                  v.out.words()[0], v.decided_out.words()[0]})
      put(x);
  };
  for (const RankState& r : w.ranks) {
    for (const Vote& v : r.mirror) put_vote(v);
    put(r.dead | r.left << 1 | r.gave_up << 2);
    put(static_cast<std::uint64_t>(r.next + 1));
    put_vote(r.agreement.vote());
    if (r.next < 0) continue;  // what it saw before is forgotten
    put(r.ended.words()[0]);
    for (int j = 0; j < r.next; ++j) put_vote(r.seen[j]);
  }
  for (const Vote& b : w.boards) put_vote(b);
  for (const auto& [where, what] : w.decisions) {
    put(static_cast<std::uint64_t>(where.first));
    put(where.second);
    put(what.first.words()[0] | (what.second ? 128u : 0u));
  }
  put(static_cast<std::uint64_t>(w.deaths_left));
  return key;
}

class Walk {
 public:
  Walk(int n, Way way, std::uint64_t rounds) : n_(n), way_(way), rounds_(rounds) {}

  World start(int deaths) const {
    World w;
    for (int r = 0; r < n_; ++r) {
      w.ranks.emplace_back(r, n_);
      w.boards.push_back(w.ranks[r].agreement.vote());
      if (way_ == Way::kMirror) w.ranks[r].mirror = w.ranks[r].seen;
    }
    w.deaths_left = deaths;
    return w;
  }

  // One whole look of a rank, with all words that can have come to it; or its next round.
  void go_on(World& w, int r) const {
    RankState& me = w.ranks[r];
    if (me.dead || me.left || me.gave_up) return;
    if (!me.agreement.is_open()) {
      propose(w, r, false);
      return;
    }
    for (int j = 0; way_ == Way::kMirror && j < n_; ++j) {
      if (!w.ranks[j].dead) me.mirror[j] = w.boards[j];
    }
    do {
      look_a_little(w, r);
    } while (me.next >= 0);
  }

  // All worlds that one step makes of w.
  std::vector<World> successors(const World& w) const {
    std::vector<World> all;
    for (int r = 0; r < n_; ++r) {
      const RankState& rank = w.ranks[r];
      if (rank.dead || rank.left || rank.gave_up) continue;
      if (w.deaths_left > 0) {
        World next = w;
        next.ranks[r].dead = true;
        --next.deaths_left;
        all.push_back(std::move(next));
      }
      if (!rank.agreement.is_open()) {
        for (const bool spoiled : {false, true}) {
          if (spoiled && rank.agreement.round() == 0) continue;
          World next = w;
          propose(next, r, spoiled);
          all.push_back(std::move(next));
        }
        continue;
      }
      if (way_ == Way::kMirror) deliver_to(r, w, all);
      World next = w;
      do {
        look_a_little(next, r);
      } while (way_ != Way::kMemory && next.ranks[r].next >= 0);
      all.push_back(std::move(next));
    }
    return all;
  }

 private:
  void propose(World& w, int r, bool spoiled) const {
    w.ranks[r].agreement.propose(RankSet(n_), spoiled);
    w.boards[r] = w.ranks[r].agreement.vote();
  }

  void deliver_to(int r, const World& w, std::vector<World>& all) const {
    for (int j = 0; j < n_; ++j) {
      if (w.ranks[j].dead || w.ranks[r].mirror[j] == w.boards[j]) continue;
      World next = w;
      next.ranks[r].mirror[j] = w.boards[j];
      all.push_back(std::move(next));
    }
  }

  void look_a_little(World& w, int r) const {
    RankState& me = w.ranks[r];
    if (me.next < 0) {
      me.ended = RankSet(n_);
      for (int j = 0; j < n_; ++j) {
        if (!w.ranks[j].dead && !w.ranks[j].left && !w.ranks[j].gave_up) continue;
        me.ended.add(j);
        if (way_ == Way::kMirror && w.ranks[j].left) me.mirror[j] = w.boards[j];
      }
      me.next = 0;
      return;
    }
    if (me.next < n_) {
      me.seen[me.next] = way_ == Way::kMirror ? me.mirror[me.next] : w.boards[me.next];
      ++me.next;
      return;
    }
    me.next = -1;
    const bool decided = me.agreement.look(me.ended, me.seen);
    w.boards[r] = me.agreement.vote();
    if (!decided) return;
    if (me.agreement.is_out()) {
      me.gave_up = true;
      return;
    }
    const std::uint64_t round = me.agreement.round();
    w.decisions[{r, round}] = {me.agreement.out(), me.agreement.spoiled()};
    me.left = round == rounds_;
  }

  int n_;
  Way way_;
  std::uint64_t rounds_;
};

// What must hold in every world. Nothing is ever killed for being late, so nobody is put out alive.
std::string what_is_wrong(const World& w) {
  const int n = static_cast<int>(w.ranks.size());
  for (int r = 0; r < n; ++r) {
    if (w.ranks[r].gave_up) return "rank " + std::to_string(r) + " was put out alive";
    if (w.ranks[r].dead) continue;
    for (std::uint64_t round = 1; round <= kMostRounds; ++round) {
      const auto mine = w.decisions.find({r, round});
      if (mine == w.decisions.end()) continue;
      for (int j = 0; j < n; ++j) {
        if (mine->second.first.has(j) && !w.ranks[j].dead) return "a living rank is out";
        const auto theirs = w.decisions.find({j, round});
        if (w.ranks[j].dead || theirs == w.decisions.end()) continue;
        if (theirs->second != mine->second) {
          return "round " + std::to_string(round) + ": ranks " + std::to_string(r) + " and " +
                 std::to_string(j) + " decided differently";
        }
      }
    }
  }
  return {};
}

bool all_done(const World& w) {
  return std::ranges::all_of(w.ranks, [](const RankState& r) { return r.dead || r.left; });
}

struct Found {
  std::size_t worlds = 0;
  std::string wrong;
};

// Every world that can be reached; and from every one of them all can still finish: the looks alone
// (no death, nothing spoiled from there on) must lead to an end.
Found explore(int n, int deaths, Way way, std::uint64_t rounds) {
  const Walk walk(n, way, rounds);
  std::set<std::string> known;
  std::vector<World> open{walk.start(deaths)};
  known.insert(key_of(open[0]));
  Found found;
  while (!open.empty()) {
    const World w = std::move(open.back());
    open.pop_back();
    ++found.worlds;
    found.wrong = what_is_wrong(w);
    if (!found.wrong.empty()) return found;
    World run = w;
    run.deaths_left = 0;
    for (int i = 0; !all_done(run); ++i) {
      if (i == 100) {
        found.wrong = "the survivors come to no end";
        return found;
      }
      for (int r = 0; r < n; ++r) walk.go_on(run, r);
    }
    found.wrong = what_is_wrong(run);
    if (!found.wrong.empty()) return found;
    for (World& next : walk.successors(w)) {
      if (known.insert(key_of(next)).second) open.push_back(std::move(next));
    }
  }
  return found;
}

void expect_agreement(int n, Way way, std::uint64_t rounds, int most_deaths) {
  for (int deaths = 0; deaths <= most_deaths; ++deaths) {
    const Found found = explore(n, deaths, way, rounds);
    EXPECT_EQ(found.wrong, "") << deaths << " deaths, after " << found.worlds << " worlds";
    EXPECT_GT(found.worlds, 20u);
    std::printf("%d ranks, %d deaths: %zu worlds\n", n, deaths, found.worlds);
  }
}

TEST(Agreement, AllOrdersOfFourRanks) { expect_agreement(4, Way::kWhole, 2, 3); }
TEST(Agreement, AllOrdersInTheSmallestSteps) {
  expect_agreement(2, Way::kMemory, 2, 1);
  expect_agreement(3, Way::kMemory, 1, 2);
}
TEST(Agreement, AllOrdersOverANetwork) {
  expect_agreement(2, Way::kMirror, 2, 1);
  expect_agreement(3, Way::kMirror, 1, 2);
}

}  // namespace
}  // namespace treering
