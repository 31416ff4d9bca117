// The process that starts the ranks, carries their output, and ends them all when one fails, when
// time is up, when the launcher is told to stop, or when the launcher itself is gone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/run.hpp"
#include "cli/run_output.hpp"
#include "cli/run_spawn.hpp"
#include "core/deadline.hpp"
#include "core/unique_fd.hpp"

namespace treering::run {

// Single-threaded. All signals that the process may get are blocked in it (run.cpp).
class Supervisor {
 public:
  // control: a byte is a signal that the launcher got; its end is the launcher's.
  Supervisor(const Options& options, UniqueFd control, const Job& job);

  // Returns the exit status of the job. No process of it is left then.
  int run();

 private:
  enum class Phase {
    kRunning,
    kAsked,  // all have been sent SIGTERM
    kForced  // all are being killed
  };

  int start_ranks();  // an exit status; 0: all run
  void loop_until_ended();
  void wait_for_events();
  void reap();
  void on_control();
  void relay_input();
  // Remembers the status, says why, asks all to end.
  void end(int status, const std::string& why);
  void drain();
  void say(const std::string& text);
  std::vector<int> running() const;

  const Options& options_;
  const Job& job_;
  UniqueFd control_;
  UniqueFd child_signals_;  // signalfd
  Sink out_;
  Sink err_;
  Sink& err_sink_;  // out_ if both are the same file, so that lines do not mix there
  std::vector<Source> sources_;
  std::map<pid_t, int> ranks_;  // that have not ended
  UniqueFd input_;              // to rank 0, if our input is a terminal
  std::string input_text_;
  bool gives_up_output_ = false;  // do not wait for a reader of our output that does not read
  Phase phase_ = Phase::kRunning;
  Deadline phase_end_;
  int status_ = 0;
};

}  // namespace treering::run
