// Bootstrap: how the ranks of a job find each other before any link exists.
//
// Everything meets in a store (bootstrap/store.hpp): one thread in one process that listens. With a
// unique id the store lives in the process that made the id, and the id says at which addresses and
// with which key; with a launcher's environment it lives in rank 0. SECURITY.md says who can join.
//
// Where the store of a launcher's job is. On one host: on the loopback interface. On several: on
// the host that MASTER_ADDR, TR_STORE_ADDR or Slurm names; all its addresses are tried at once. The
// key of the job is TR_JOB_KEY, follows from TR_SECRET, or, without a secret, from what names the
// job to its launcher (bootstrap/job_key.hpp). Rank 0 listens on the first free one of a few ports
// between 20000 and 32767 that follow from the key; the others try the same ports until a store
// proves that it has the key, so that a foreign listener on one of them costs a moment and no more.
// torchrun's MASTER_PORT is the agent's own and is never bound. TR_STORE_PORT fixes one port
// instead, TR_PORT_RANGE several.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/unique_id.hpp"
#include "core/config.hpp"
#include "core/status.hpp"

namespace treering {

// Starts a store for one communicator in this process and names it. The store ends by itself when
// the communicator's ranks have left it (or its set-up has failed on all that came), or with the
// process.
Result<IdBytes> start_root(const Config& config);

// Collective over `size` callers, processes or threads, with the same id. Blocks until this rank
// has joined; Rendezvous::all_gather waits for the others. kInvalidArgument: an id that is garbage,
// a rank that another caller has too, sizes that differ. kRemote: the root is gone. Errors that one
// rank's arguments cause reach every rank.
Result<std::unique_ptr<Rendezvous>> join_root(const IdBytes& id, int size, int rank,
                                              const Config& config);

// What the launcher says.
struct LaunchEnv {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;  // ranks on this host; 0: the launcher does not say
  std::string source;  // "treering run", "torchrun", "Open MPI", "PMI", "Slurm"; "none"
  bool several_hosts = false;
  std::string host_of_rank_0;  // name or address, if the launcher says it
  std::string job;             // what tells this job from others of the same launcher
};

// Reads the environment: our own variables (TR_RANK, TR_SIZE), torchrun's (RANK, WORLD_SIZE), Open
// MPI's (OMPI_COMM_WORLD_RANK), PMI's (MPICH and its kin: PMI_RANK) and Slurm's (SLURM_PROCID), in
// this order; the first launcher of which there is a trace decides. None: rank 0 of 1. Half-set or
// contradictory variables: kInvalidArgument.
Result<LaunchEnv> launch_env(const Config& config);

// Collective over the ranks of the job, any number of times: the k-th call of every rank together.
// One thread of a process at a time.
Result<std::unique_ptr<Rendezvous>> join_env(const LaunchEnv& env, const Config& config);

}  // namespace treering
