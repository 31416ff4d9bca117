// Survival: how far a communicator has come with tr_comm_shrink. It lasts from call to call, so
// that who ran into a deadline may go on, without a rank that does not come, say.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "comm/agreement.hpp"
#include "core/status.hpp"

namespace treering {

class Communicator;

struct Survival {
  Survival(int rank, int size) : agreement(rank, size), candidate_out(size) {}

  Agreement agreement;
  // What this rank formed after the last decision, over all that were not out by it.
  std::shared_ptr<Communicator> candidate;
  RankSet candidate_out;
  Status why;         // it formed none
  int in_vain = 0;    // attempts in a row that were spoiled though nobody was lost
  bool done = false;  // the candidate was handed out
};

}  // namespace treering
