// Ranks for tests of the whole library: n communicators in threads of this process or in n forked
// processes, each running the same function. What a rank finds wrong is a text; empty means fine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "treering/treering.h"

namespace treering::test {

enum class Mode { kThreads, kProcesses };
inline const char* mode_name(Mode m) { return m == Mode::kThreads ? "threads" : "processes"; }

using RankBody = std::function<std::string(tr_comm_t comm, int rank, int size)>;

// Runs `body` on `size` ranks and destroys their communicators; the findings of all ranks, one a
// line. Processes: the caller must have no other threads. A rank that does not end in `limit_s` is
// killed and reported.
std::string run_ranks(Mode mode, int size, const RankBody& body, int limit_s = 120);

// From now on rank r of run_ranks(Mode::kProcesses) plays a rank of host host_of_rank[r mod its
// size] (TR_HOST_ID): ranks of different hosts talk TCP over loopback. Empty: one host.
void play_hosts(std::vector<int> host_of_rank);

// "rank 2: tr_all_reduce: timeout: ..." if result is not TR_SUCCESS.
std::string failure(const char* call, tr_result_t result);

}  // namespace treering::test
