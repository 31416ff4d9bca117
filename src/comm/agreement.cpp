#include "comm/agreement.hpp"

namespace treering {

Agreement::Agreement(int rank, int size) : rank_(rank), size_(size) {
  mine_.out = mine_.decided_out = RankSet(size);
}

void Agreement::propose(const RankSet& out, bool spoiled) {
  ++mine_.round;
  mine_.out.merge(mine_.decided_out);
  mine_.out.merge(out);
  if (spoiled) mine_.spoiled = mine_.round;
}

bool Agreement::look(const RankSet& ended, const std::vector<Vote>& votes) {
  if (!is_open()) return true;
  missing_.clear();
  if (adopt(votes)) return true;
  mine_.out.merge(ended);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || mine_.out.has(r) || votes[r].round < mine_.round) continue;
    mine_.out.merge(votes[r].out);
    if (votes[r].spoiled == mine_.round) mine_.spoiled = mine_.round;
  }
  if (is_out()) return true;
  bool all_alike = true;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || mine_.out.has(r)) continue;
    if (votes[r].round < mine_.round) missing_.push_back(r);
    all_alike &= votes[r].round == mine_.round && votes[r].out == mine_.out &&
                 (votes[r].spoiled == mine_.round) == (mine_.spoiled == mine_.round);
  }
  if (all_alike) decide(mine_.out, mine_.spoiled == mine_.round);
  return all_alike;
}

// Rule (b). Nobody can be further than one round ahead of a rank that it has not put out; where
// somebody is, it has put this one out.
bool Agreement::adopt(const std::vector<Vote>& votes) {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || mine_.out.has(r) || votes[r].decided_round < mine_.round) continue;
    if (votes[r].decided_round > mine_.round) {
      mine_.out.add(rank_);
      return true;
    }
    decide(votes[r].decided_out, votes[r].decided_spoiled == mine_.round);
    return true;
  }
  return false;
}

void Agreement::decide(const RankSet& out, bool spoiled) {
  mine_.out.merge(out);
  mine_.decided_out = out;
  if (spoiled) mine_.decided_spoiled = mine_.round;
  mine_.decided_round = mine_.round;
}

}  // namespace treering
