// Teams of workers: one per library, started by the library's own launcher, each worker connected
// to the driver by a control socket. Everything a team started ends with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <signal.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "cli/perf/private_dir.hpp"
#include "perf/failure.hpp"
#include "perf/wire.hpp"

namespace treering::perf {

using Clock = std::chrono::steady_clock;

// How to start a team.
struct TeamSpec {
  std::string name;               // "mpi-nocma"
  std::vector<std::string> argv;  // the launcher; argv[0] is searched in PATH
  std::vector<std::pair<std::string, std::string>> environment = {};  // besides the inherited
  // Variables that get the run's private directory, which is in memory and removed at the end: for
  // what a launcher would leave in /tmp or /dev/shm when it is hurried.
  std::vector<std::string> directory_variables = {};
  bool needs_directory = true;  // ours does not
};

// SIGINT, SIGTERM, SIGHUP and SIGQUIT, unless they were ignored when we started (nohup), become
// readable on a descriptor, so that every wait of the driver ends on them and the teams can be
// stopped in order. So does SIGPIPE: a reader of our table that goes away. Restores the signal
// mask.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  int fd() const { return fd_; }
  int signal();  // the one that has come, or 0; it stays

 private:
  int fd_ = -1;
  int signal_ = 0;
  sigset_t before_;
};

class Team {
 public:
  Team(TeamSpec spec, int index, int ranks)
      : spec_(std::move(spec)), index_(index), ranks_(ranks) {}
  ~Team() { stop(false); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  const std::string& name() const { return spec_.name; }
  const std::string& version() const { return version_; }
  // What its workers said of their GPUs: how many there are and of which kind; 0: host memory.
  int devices() const { return devices_; }
  const std::string& device() const { return device_; }
  std::string launch_line() const;
  int ranks() const { return ranks_; }
  pid_t worker_pid(int rank) const { return workers_[static_cast<std::size_t>(rank)].pid; }

  // Sends the command to every rank and waits for all replies, by rank. A worker that reports a
  // failure, dies or does not answer in time is a Failure that names it and shows what its launcher
  // wrote.
  Failure command(const Command& command, Interrupt& interrupt, std::vector<Reply>* replies);
  // The same, except that a worker may refuse: *refusal is then its reason, and otherwise empty.
  Failure query(const Command& command, Interrupt& interrupt, std::vector<Reply>* replies,
                std::string* refusal);

  // Ends the team, workers and launcher: gently, by asking and waiting for some seconds, or at
  // once. Afterwards nothing of it is left.
  void stop(bool gently);

 private:
  friend class Teams;
  struct Worker {
    Fd socket;
    Fd process;  // a pidfd: signals cannot hit a process that came later
    pid_t pid = 0;
  };

  Failure start(const std::string& socket_name, const PrivateDir& dir, double timeout_s);
  Failure admit(const Hello& hello, Fd socket, pid_t pid);
  bool is_complete() const { return connected_ == ranks_; }
  void ask_to_quit();
  void kill_all(int signal);
  Failure exchange(const Command& command, Interrupt& interrupt, std::vector<Reply>* replies,
                   bool may_refuse);
  bool reap(Clock::time_point deadline);    // true when the launcher has ended
  std::string who(std::size_t rank) const;  // "rank 3 (pid 4711)"
  // `what` with the team's name in front and the end of its output behind.
  std::string report(const std::string& what);

  TeamSpec spec_;
  int index_;
  int ranks_;
  double timeout_s_ = 60;
  std::string version_;
  int devices_ = 0;
  std::string device_;
  pid_t launcher_ = 0;  // leader of its process group; 0: ended and reaped
  Fd launcher_process_;
  Fd output_;          // a memory file: what launcher and workers wrote
  std::string ended_;  // how the launcher ended
  std::vector<Worker> workers_;
  int connected_ = 0;
};

// All teams of a run.
class Teams {
 public:
  // Starts one team per spec, of `ranks` workers each, and waits until every worker has said hello.
  Failure start(std::vector<TeamSpec> specs, int ranks, double timeout_s, Interrupt& interrupt);
  void stop(bool gently);  // all together, so that slow launchers do not wait for one another
  Team& operator[](std::size_t i) { return *teams_[i]; }
  std::size_t size() const { return teams_.size(); }

 private:
  Failure accept_worker(const Fd& listener);

  PrivateDir dir_;  // removed after the teams have ended
  std::vector<std::unique_ptr<Team>> teams_;
};

}  // namespace treering::perf
