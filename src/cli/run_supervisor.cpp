#include "cli/run_supervisor.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run_processes.hpp"
#include "core/rank_list.hpp"

namespace treering::run {
namespace {

constexpr int kAskedMs = 2000;     // from SIGTERM to SIGKILL
constexpr int kEndingPollMs = 20;  // how often we look whether the descendants have gone
constexpr int kLastFlushMs = 1000;
constexpr int kDyingMs = 1000;  // how long a process may take from its last step to its end

bool is_same_file(int a, int b) {
  struct stat x;
  struct stat y;
  return ::fstat(a, &x) == 0 && ::fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

Deadline job_deadline(double timeout_s) {
  return timeout_s > 0 ? Deadline::after_ms(static_cast<std::int64_t>(std::ceil(timeout_s * 1000)))
                       : Deadline::never();
}

// Two pipes for each rank; the ranks themselves get the limit that we were started with.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

int exit_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? kExitSignal + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string how_it_ended(int wait_status) {
  if (!WIFSIGNALED(wait_status)) {
    return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
  }
  const int signal = WTERMSIG(wait_status);
  return "died: killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")" +
         (WCOREDUMP(wait_status) ? ", core dumped" : "");
}

}  // namespace

Supervisor::Supervisor(const Options& options, UniqueFd control, const Job& job)
    : options_(options),
      job_(job),
      control_(std::move(control)),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO),
      err_sink_(is_same_file(STDOUT_FILENO, STDERR_FILENO) ? out_ : err_),
      phase_end_(job_deadline(options.timeout_s)) {}

int Supervisor::run() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGTERM);
  raise_file_limit();
  child_signals_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  status_ = start_ranks();
  if (status_ == 0) loop_until_ended();
  const std::vector<pid_t> left = kill_descendants();
  if (!left.empty()) {
    say(std::to_string(left.size()) + " processes could not be ended, such as process " +
        std::to_string(left[0]));
  }
  drain();
  return status_;
}

int Supervisor::start_ranks() {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe to_rank_0;
  if (::isatty(STDIN_FILENO)) {
    auto pipe = make_pipe();
    if (!pipe.ok()) {
      say(pipe.status().message());
      return kExitLauncher;
    }
    to_rank_0 = std::move(pipe).value();
    ::fcntl(to_rank_0.write.get(), F_SETFL, O_NONBLOCK);
  }
  const int first_input = to_rank_0.read.valid() ? to_rank_0.read.get() : STDIN_FILENO;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    int error = 0;
    auto process = spawn_rank(options_, job_, rank, rank == 0 ? first_input : null.get(), error);
    if (!process.ok()) {
      say(process.status().message());
      if (error == 0) return kExitLauncher;
      return error == ENOENT || error == ENOTDIR ? kExitNotFound : kExitCannotRun;
    }
    ranks_.emplace(process.value().pid, rank);
    if (!options_.prefix) continue;
    sources_.emplace_back(std::move(process.value().out), rank, out_);
    sources_.emplace_back(std::move(process.value().err), rank, err_sink_);
  }
  input_ = std::move(to_rank_0.write);
  return 0;
}

void Supervisor::loop_until_ended() {
  while (phase_ != Phase::kForced) {
    if (ranks_.empty()) {
      // What the ranks have left behind goes too, even if all went well.
      if (descendants().empty()) return;
      if (phase_ == Phase::kRunning) end(0, {});
    }
    wait_for_events();
    if (!phase_end_.expired()) continue;
    if (phase_ == Phase::kAsked) {
      phase_ = Phase::kForced;
    } else if (!ranks_.empty()) {
      gives_up_output_ = true;
      end(kExitTimeout, "not done after " + seconds_text(options_.timeout_s) + ": " +
                            rank_list(running()) + (ranks_.size() == 1 ? " was" : " were") +
                            " still running");
    }
  }
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> polls = {{child_signals_.get(), POLLIN, 0}, {control_.get(), POLLIN, 0}};
  const bool wants_input = input_.valid() && input_text_.empty();
  polls.push_back({wants_input ? STDIN_FILENO : -1, POLLIN, 0});
  polls.push_back({input_.get(), static_cast<short>(input_text_.empty() ? 0 : POLLOUT), 0});
  for (const Sink* sink : {&out_, &err_}) {
    polls.push_back({sink->waiting_bytes() > 0 ? sink->fd() : -1, POLLOUT, 0});
  }
  const std::size_t first_source = polls.size();
  for (const Source& source : sources_) {
    polls.push_back({source.sink().is_full() ? -1 : source.fd(), POLLIN, 0});
  }
  int timeout_ms = phase_end_.poll_ms();
  if (phase_ == Phase::kAsked) timeout_ms = std::min(timeout_ms, kEndingPollMs);
  if (::poll(polls.data(), polls.size(), timeout_ms) < 0) return;

  for (std::size_t i = first_source; i < polls.size(); ++i) {
    if (polls[i].revents != 0) sources_[i - first_source].read_some();
  }
  if (polls[4].revents != 0 && !out_.write_some()) end(kExitSignal + SIGPIPE, {});
  if (polls[5].revents != 0 && !err_.write_some()) end(kExitSignal + SIGPIPE, {});
  if ((polls[3].revents & POLLERR) != 0) {
    input_.reset();  // rank 0 reads no more
  } else if (polls[2].revents != 0 || polls[3].revents != 0) {
    relay_input();
  }
  if (polls[0].revents != 0) reap();
  if (polls[1].revents != 0) on_control();
}

void Supervisor::reap() {
  signalfd_siginfo info;
  bool is_asked_to_end = false;
  while (::read(child_signals_.get(), &info, sizeof info) == sizeof info) {
    is_asked_to_end |= info.ssi_signo == SIGTERM;
  }
  // Of ranks that failed at about the same time, one that a signal killed is the likelier cause:
  // the others may have failed because of it. A rank that is dying closes its connections before it
  // can be reaped, and who notices that may be reaped first: so the dying are waited for.
  int failed_rank = -1;
  int failed_status = 0;
  const auto reap_ended = [&] {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto it = ranks_.find(pid);
      if (it == ranks_.end()) continue;  // a rank's orphan
      const int rank = it->second;
      ranks_.erase(it);
      if (exit_status(status) == 0) continue;
      if (failed_rank < 0 || (WIFSIGNALED(status) && !WIFSIGNALED(failed_status))) {
        failed_rank = rank;
        failed_status = status;
      }
    }
  };
  reap_ended();
  const Deadline dying_end = Deadline::after_ms(kDyingMs);
  while (phase_ == Phase::kRunning && failed_rank >= 0 && !WIFSIGNALED(failed_status) &&
         !dying_end.expired() && std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
           return is_dying(rank.first);
         })) {
    ::usleep(1000);
    reap_ended();
  }
  if (phase_ == Phase::kRunning && failed_rank >= 0) {
    end(exit_status(failed_status),
        "rank " + std::to_string(failed_rank) + " " + how_it_ended(failed_status));
  }
  if (phase_ == Phase::kRunning && is_asked_to_end) end(kExitSignal + SIGTERM, "terminated");
}

void Supervisor::on_control() {
  unsigned char signal = 0;
  if (::read(control_.get(), &signal, 1) != 1) {
    // The launcher has been killed: nobody waits for a tidy end.
    gives_up_output_ = true;
    control_.reset();
    phase_ = Phase::kForced;
  } else if (phase_ == Phase::kRunning) {
    gives_up_output_ = true;
    end(kExitSignal + signal, std::string("stopped by ") + ::strsignal(signal));
  } else {
    gives_up_output_ = true;
    phase_ = Phase::kForced;
  }
}

void Supervisor::relay_input() {
  if (input_text_.empty()) {
    char buffer[4096];
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n <= 0) return input_.reset();  // its end; or we are in the background and may not read
    input_text_.assign(buffer, static_cast<std::size_t>(n));
  }
  const ssize_t n = ::write(input_.get(), input_text_.data(), input_text_.size());
  if (n > 0) input_text_.erase(0, static_cast<std::size_t>(n));
  if (n < 0 && errno == EPIPE) input_.reset();
}

void Supervisor::end(int status, const std::string& why) {
  if (phase_ != Phase::kRunning) return;
  status_ = status;
  if (!why.empty()) {
    const std::vector<int> others = running();
    say(why + (others.empty() || status == kExitTimeout ? "" : "; ending " + rank_list(others)));
  }
  signal_descendants(SIGTERM);
  signal_descendants(SIGCONT);  // a stopped process gets no SIGTERM
  phase_ = Phase::kAsked;
  phase_end_ = Deadline::after_ms(kAskedMs);
}

void Supervisor::drain() {
  phase_ = Phase::kForced;
  // All writers have gone, so that every source ends soon, unless a process of another user holds
  // it.
  Deadline idle = Deadline::after_ms(kLastFlushMs);
  for (;;) {
    const bool has_open = std::any_of(sources_.begin(), sources_.end(),
                                      [](const Source& source) { return source.is_open(); });
    const std::size_t waiting = out_.waiting_bytes() + err_.waiting_bytes();
    if (waiting == 0 && !has_open) return;
    if (idle.expired() && (waiting == 0 || gives_up_output_)) return;
    phase_end_ = idle;
    wait_for_events();
    if (out_.waiting_bytes() + err_.waiting_bytes() != waiting) {
      idle = Deadline::after_ms(kLastFlushMs);
    }
  }
}

void Supervisor::say(const std::string& text) { err_sink_.add("treering run: " + text + "\n"); }

std::vector<int> Supervisor::running() const {
  std::vector<int> ranks;
  for (const auto& [pid, rank] : ranks_) ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace treering::run
