// Starts the processes of a job.
#pragma once

#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>

#include "cli/run.hpp"
#include "core/status.hpp"
#include "core/unique_fd.hpp"

namespace treering::run {

// What all ranks of a job share.
struct Job {
  std::string key;          // TR_JOB_KEY: 32 hexadecimal digits
  std::string master_port;  // MASTER_PORT, for programs that bring their own rendezvous
  // As they were when we started: a rank gets these, not ours.
  sigset_t signal_mask{};
  rlimit file_limit{};
};
Result<Job> make_job(const sigset_t& signal_mask);

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};
Result<Pipe> make_pipe();

struct RankProcess {
  pid_t pid = -1;
  UniqueFd out;  // the reading ends, if the output is prefixed
  UniqueFd err;
};

// Starts one rank, in a process group of its own; it dies with its parent. `input`: its standard
// input. kInvalidArgument: the program cannot be executed; `errno_value` says why.
Result<RankProcess> spawn_rank(const Options& options, const Job& job, int rank, int input,
                               int& errno_value);

}  // namespace treering::run
