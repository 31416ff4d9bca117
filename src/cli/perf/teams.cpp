// Starting all teams of a run together, and what they share: the listening socket and the signals.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/perf/team.hpp"

namespace treering::perf {
namespace {

// Nobody can guess the name, so nobody can hold it or connect by accident.
std::string random_name() {
  unsigned char bytes[16] = {};
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return "treering-perf-" + std::to_string(::getpid());
  std::string name = "treering-perf-";
  for (const unsigned char byte : bytes) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", byte);
    name += hex;
  }
  return name;
}

}  // namespace

Interrupt::Interrupt() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&set, signal);
  }
  ::sigprocmask(SIG_BLOCK, &set, &before_);
  fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Interrupt::~Interrupt() {
  if (fd_ >= 0) ::close(fd_);
  // It has been heard: what stdio could not write and tries again at exit shall not raise it again.
  if (signal_ == SIGPIPE) ::signal(SIGPIPE, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int Interrupt::signal() {
  signalfd_siginfo info;
  if (signal_ == 0 && ::read(fd_, &info, sizeof info) == sizeof info) {
    signal_ = static_cast<int>(info.ssi_signo);
  }
  return signal_;
}

Failure Teams::start(std::vector<TeamSpec> specs, int ranks, double timeout_s,
                     Interrupt& interrupt) {
  const std::string name = random_name();
  Fd listener;
  if (Failure failure = listen_on(name, &listener)) return failure;
  const auto needs_directory = [](const TeamSpec& spec) { return spec.needs_directory; };
  if (std::any_of(specs.begin(), specs.end(), needs_directory)) {
    if (Failure failure = dir_.create()) return failure;
  }
  for (TeamSpec& spec : specs) {
    teams_.push_back(
        std::make_unique<Team>(std::move(spec), static_cast<int>(teams_.size()), ranks));
    if (Failure failure = teams_.back()->start(name, dir_, timeout_s)) return failure;
  }
  const auto deadline = Clock::now() + std::chrono::milliseconds(static_cast<int>(timeout_s * 1e3));
  for (;;) {
    std::vector<pollfd> entries = {{listener.fd(), POLLIN, 0}, {interrupt.fd(), POLLIN, 0}};
    std::string missing;
    for (const auto& team : teams_) {
      if (team->is_complete()) continue;
      missing += (missing.empty() ? "" : ", ") + team->name();
      entries.push_back({team->launcher_process_.fd(), POLLIN, 0});
    }
    if (missing.empty()) return std::nullopt;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    const int ready = left.count() > 0
                          ? ::poll(entries.data(), entries.size(), static_cast<int>(left.count()))
                          : 0;
    if (interrupt.signal() != 0) return "interrupted";
    if (ready == 0) {
      for (const auto& team : teams_) {
        if (team->is_complete()) continue;
        return team->report("only " + std::to_string(team->connected_) + " of " +
                            std::to_string(ranks) + " workers have connected within " +
                            std::to_string(static_cast<int>(timeout_s)) + " s");
      }
    }
    if (entries[0].revents != 0) {
      if (Failure failure = accept_worker(listener)) return failure;
      continue;  // a worker that connected and ended is better explained by its hello
    }
    for (const auto& team : teams_) {
      if (!team->is_complete() && team->reap(Clock::now())) {
        return team->report("could not be started");
      }
    }
  }
}

Failure Teams::accept_worker(const Fd& listener) {
  Fd socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket.is_open()) return with_errno("cannot accept a worker", errno);
  ucred peer;
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
      peer.uid != ::geteuid()) {
    return std::nullopt;  // somebody else's process: not ours to answer
  }
  Hello hello;
  if (Failure failure = receive_message(socket, &hello, sizeof hello)) return failure;
  if (hello.magic != kWireMagic) {
    return "a worker of another version has connected: build all workers together";
  }
  if (hello.team < 0 || static_cast<std::size_t>(hello.team) >= teams_.size()) {
    return "a worker of an unknown team has connected";
  }
  return teams_[static_cast<std::size_t>(hello.team)]->admit(hello, std::move(socket), peer.pid);
}

void Teams::stop(bool gently) {
  for (const auto& team : teams_) team->ask_to_quit();
  if (!gently) {
    for (const auto& team : teams_) team->kill_all(SIGTERM);
  }
  for (const auto& team : teams_) team->stop(gently);
  teams_.clear();
  dir_.remove();
}

}  // namespace treering::perf
