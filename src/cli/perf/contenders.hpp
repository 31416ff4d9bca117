// Who takes part in a run: our own library and the peers, and how each is started.
#pragma once

#include <string>
#include <vector>

#include "cli/perf/options.hpp"
#include "cli/perf/team.hpp"
#include "perf/failure.hpp"

namespace treering::perf {

struct TeamPlan {
  TeamSpec spec;
  bool ours = false;
  // Ours: the algorithms to measure, "" for the library's own choice. Peers: the settings that the
  // user named, empty for all that the worker offers.
  std::vector<std::string> settings;
};

// Ours first, then the peers in the order given. A peer that cannot be started here is a Failure
// that says what to install or build. Peers' workers are looked for in $TREERING_PEER_DIR, next to
// the running executable, in peers/ of its build tree and in libexec/treering/ of its prefix.
Failure plan_teams(const Job& job, std::vector<TeamPlan>* out, bool* is_usage_failure);

// Those of mpi, gloo and nccl that plan_teams would find.
std::vector<std::string> peers_present();

}  // namespace treering::perf
