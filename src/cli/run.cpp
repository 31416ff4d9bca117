// `treering run`: the launcher. It is two processes: the one that the user started, which only
// waits, passes signals on and hands the exit status back, and below it a supervisor that does
// everything (run_supervisor.hpp). If one of the two is killed, the other one ends all ranks and
// whatever they have started; if both are killed at once, the ranks die with the supervisor
// (PR_SET_PDEATHSIG).
//
// Rank 0 hosts the store in which the ranks meet, as under every other launcher, so that there is
// one way to meet and not two. The launcher gives all ranks a random TR_JOB_KEY; the store's port
// follows from it.
#include "cli/run.hpp"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands.hpp"
#include "cli/run_processes.hpp"
#include "cli/run_spawn.hpp"
#include "cli/run_supervisor.hpp"

namespace treering {
namespace run {
namespace {

// Descriptors 0 to 2 exist, so that no pipe of ours gets such a number.
void open_standard_files() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) ::close(fd);
}

// Signals that ask us to stop; not those that we were started to ignore (nohup).
sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  return signals;
}

int complain(const std::string& text) {
  std::fprintf(stderr, "treering run: %s\n", text.c_str());
  return kExitLauncher;
}

// Until the supervisor has ended: passes signals on. Returns its wait status.
int wait_for(pid_t supervisor, const sigset_t& signals, int control) {
  sigset_t awaited = signals;
  sigaddset(&awaited, SIGCHLD);
  int status = 0;
  while (::waitpid(supervisor, &status, WNOHANG) != supervisor) {
    const int signal = ::sigwaitinfo(&awaited, nullptr);
    if (signal <= 0 || signal == SIGCHLD) continue;
    const auto byte = static_cast<unsigned char>(signal);
    [[maybe_unused]] const ssize_t written = ::write(control, &byte, 1);
  }
  return status;
}

int launch(const Options& options) {
  open_standard_files();
  // Orphans of the job come to the supervisor or, if it has been killed, to us.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto control = make_pipe();
  if (!control.ok()) return complain(control.status().message());

  // The supervisor looks at signals where it wants to, and a rank starts with our caller's mask.
  const sigset_t stop = stop_signals();
  sigset_t blocked = stop;
  for (int signal : {SIGCHLD, SIGTERM, SIGPIPE, SIGTTIN, SIGTTOU}) sigaddset(&blocked, signal);
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  auto job = make_job(before);
  if (!job.ok()) return complain(job.status().message());

  const pid_t supervisor = ::fork();
  if (supervisor < 0) return complain(std::string("cannot fork: ") + std::strerror(errno));
  if (supervisor == 0) {
    control.value().write.reset();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::_exit(Supervisor(options, std::move(control.value().read), job.value()).run());
  }
  const int status = wait_for(supervisor, stop, control.value().write.get());
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const auto left = kill_descendants();
  return complain(
      "the supervisor was killed by signal " + std::to_string(WTERMSIG(status)) +
      (left.empty() ? "; all ranks have been ended" : "; some processes could not be ended"));
}

}  // namespace
}  // namespace run

void add_run_command(CLI::App& app, const std::vector<std::string>& from_dashes) {
  auto options = std::make_shared<run::Options>();
  CLI::App* command = app.add_subcommand(
      "run", "Start the ranks of a program here: treering run -n N [OPTIONS] [--] PROG [ARGS...]");
  command->add_option("-n,--ranks", options->ranks, "number of ranks")
      ->required()
      ->check(CLI::Range(1, run::kMaxLocalRanks));
  command->add_option("--timeout", options->timeout_s, "end all after so many seconds (status 124)")
      ->check(CLI::Range(0.001, 1e9));
  command->add_flag_callback(
      "--no-prefix", [options] { options->prefix = false; },
      "let the ranks write to this output themselves, without a rank before each line");
  command->prefix_command();  // from the program's name on, everything is the program's
  command->footer(
      "The exit status is 0 if all ranks end with 0; otherwise that of the first rank that fails,\n"
      "128 + n if signal n killed it. The first failure ends all ranks. 124: time is up.\n"
      "127, 126: the program was not found, cannot be executed. 125: the launcher failed.\n"
      "Standard input goes to rank 0.");
  command->callback([command, options, from_dashes] {
    options->program = command->remaining();
    if (!options->program.empty() && options->program[0].starts_with('-')) {
      throw CLI::ExtrasError(command->get_name(), {options->program[0]});
    }
    // "-- PROG": the dashes have done their work. "PROG -- X": they are the program's.
    const auto skip = options->program.empty() && !from_dashes.empty() ? 1 : 0;
    options->program.insert(options->program.end(), from_dashes.begin() + skip, from_dashes.end());
    if (options->program.empty()) throw CLI::RequiredError("the program to run");
    if (const int status = run::launch(*options); status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace treering
