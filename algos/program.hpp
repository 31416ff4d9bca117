// A program: the schedules of all ranks of one collective, and what is claimed of them. Algorithms
// of the registry and a reader's own are checked in this form.
#pragma once

#include <vector>

#include "algos/registry.hpp"
#include "algos/schedule.hpp"
#include "core/types.hpp"

namespace treering::algos {

struct Program {
  Collective collective = Collective::kAllReduce;
  int root = 0;
  int chunks = 1;  // into how many the vector is cut
  bool in_place = false;
  // Claims, as in Algorithm.
  bool keeps_order = false;
  bool order_is_fixed = false;
  bool uneven = false;
  std::vector<Schedule> ranks;  // ranks[r] is rank r's

  int size() const { return static_cast<int>(ranks.size()); }
};

// Records every rank. size must be supported, on these hosts (nullptr: one host).
Program make_program(const Algorithm& algorithm, int size, int root = 0, bool in_place = false,
                     const HostMap* hosts = nullptr);

// Which chunks of its buffers the caller brings: the others do not exist on that rank.
bool has_in(const Program& program, int rank, int chunk);
bool has_out(const Program& program, int rank, int chunk);
// Does the collective fold?
bool folds(Collective collective);

}  // namespace treering::algos
