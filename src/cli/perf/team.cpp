#include "cli/perf/team.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace treering::perf {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kQuitGrace{5000};   // for a launcher to end after its workers have
constexpr milliseconds kTermGrace{3000};   // and after SIGTERM
constexpr milliseconds kCauseWait{500};    // for the cause to show up behind a first failure
constexpr milliseconds kReportWait{2000};  // for a launcher to say how its worker ended

// By number: glibc 2.36 declares these two without C linkage.
Fd open_process(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }
void signal_process(const Fd& process, int signal) {
  ::syscall(SYS_pidfd_send_signal, process.fd(), signal, nullptr, 0);
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

bool is_readable(int fd, Clock::time_point deadline) {
  pollfd entry{fd, POLLIN, 0};
  int ready;
  do {
    ready = ::poll(&entry, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// In the child: never returns.
[[noreturn]] void become(const TeamSpec& spec, int output, int hold, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);  // the driver died before the line above
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  if (hold >= 0)
    ::fcntl(hold, F_SETFD, 0);  // what we start may need the directory after the driver
  for (const auto& [name, value] : spec.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& argument : spec.argv) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::dprintf(STDERR_FILENO, "cannot execute %s: %s\n", argv[0], std::strerror(errno));
  ::_exit(127);
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) return std::string("was killed by ") + strsignal(WTERMSIG(status));
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

// The last lines of a file, indented.
std::string tail_of(int fd) {
  constexpr off_t kMost = 3000;
  const off_t size = ::lseek(fd, 0, SEEK_END);
  if (size <= 0) return "";
  std::string text(static_cast<std::size_t>(std::min(size, kMost)), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), size - static_cast<off_t>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (size > kMost) text.erase(0, text.find('\n') + 1);
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) out += "\n  | " + text.substr(begin, end - begin);
    begin = end + 1;
  }
  return out.empty() ? out : "\n  its output ends with:" + out;
}

}  // namespace

std::string Team::launch_line() const {
  std::string line;
  for (const std::string& argument : spec_.argv) line += (line.empty() ? "" : " ") + argument;
  return line;
}

Failure Team::start(const std::string& socket_name, const PrivateDir& dir, double timeout_s) {
  timeout_s_ = timeout_s;
  workers_.resize(static_cast<std::size_t>(ranks_));
  output_ = Fd(::memfd_create("output", MFD_CLOEXEC));
  if (!output_.is_open()) return with_errno("cannot create a memory file", errno);
  spec_.environment.emplace_back(kSocketVariable, socket_name);
  spec_.environment.emplace_back(kTeamVariable, std::to_string(index_));
  if (spec_.needs_directory) {
    spec_.environment.emplace_back(kDirVariable, dir.path());
    for (const std::string& variable : spec_.directory_variables) {
      spec_.environment.emplace_back(variable, dir.path());
    }
  }
  spec_.environment.emplace_back(kTimeoutVariable, std::to_string(static_cast<int>(timeout_s)));
  const pid_t parent = ::getpid();
  launcher_ = ::fork();
  if (launcher_ == 0) become(spec_, output_.fd(), spec_.needs_directory ? dir.hold() : -1, parent);
  if (launcher_ < 0) {
    launcher_ = 0;
    return with_errno(name() + ": cannot start a process", errno);
  }
  ::setpgid(launcher_, launcher_);  // as the child does: whoever comes first
  launcher_process_ = open_process(launcher_);
  if (!launcher_process_.is_open()) return with_errno("cannot open a pidfd", errno);
  return std::nullopt;
}

bool Team::reap(Clock::time_point deadline) {
  if (launcher_ == 0) return true;
  if (!is_readable(launcher_process_.fd(), deadline)) return false;
  int status = 0;
  ::waitpid(launcher_, &status, 0);
  ended_ = "its launcher " + describe_end(status);
  launcher_ = 0;
  return true;
}

std::string Team::report(const std::string& what) {
  const bool ended = reap(Clock::now() + kReportWait);
  return name() + ": " + what + (ended ? "; " + ended_ : "") + "\n  started as: " + launch_line() +
         tail_of(output_.fd());
}

void Team::kill_all(int signal) {
  if (launcher_ != 0) ::kill(-launcher_, signal);
  for (const Worker& worker : workers_) {
    if (signal == SIGKILL && worker.process.is_open()) {
      signal_process(worker.process, signal);
    }
  }
}

void Team::ask_to_quit() {
  Command quit;
  for (Worker& worker : workers_) {
    if (!worker.socket.is_open()) continue;
    (void)send_message(worker.socket, &quit, sizeof quit);
    worker.socket = Fd();  // the end of the channel, for a worker that misses the command
  }
}

void Team::stop(bool gently) {
  ask_to_quit();
  if (!gently || !reap(Clock::now() + kQuitGrace)) {
    kill_all(SIGTERM);
    if (!reap(Clock::now() + kTermGrace)) {
      kill_all(SIGKILL);
      reap(Clock::now() + kTermGrace);
    }
  }
  // A launcher that was killed may have left its workers.
  const auto deadline = Clock::now() + milliseconds(1000);
  for (Worker& worker : workers_) {
    if (worker.process.is_open() && !is_readable(worker.process.fd(), deadline)) {
      signal_process(worker.process, SIGKILL);
    }
  }
  workers_.clear();
}

std::string Team::who(std::size_t rank) const {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(workers_[rank].pid) + ")";
}

Failure Team::command(const Command& command, Interrupt& interrupt, std::vector<Reply>* replies) {
  return exchange(command, interrupt, replies, false);
}

Failure Team::query(const Command& command, Interrupt& interrupt, std::vector<Reply>* replies,
                    std::string* refusal) {
  refusal->clear();
  if (Failure failure = exchange(command, interrupt, replies, true)) return failure;
  for (const Reply& reply : *replies) {
    if (reply.ok == 0 && refusal->empty()) *refusal = reply.text;
  }
  return std::nullopt;
}

Failure Team::exchange(const Command& command, Interrupt& interrupt, std::vector<Reply>* replies,
                       bool may_refuse) {
  replies->assign(workers_.size(), Reply());
  std::vector<pollfd> entries;
  for (const Worker& worker : workers_) {
    // A send that fails shows as a closed channel below.
    (void)send_message(worker.socket, &command, sizeof command);
    entries.push_back({worker.socket.fd(), POLLIN, 0});
  }
  entries.push_back({interrupt.fd(), POLLIN, 0});
  std::string died;
  std::string failed;
  auto deadline = after(timeout_s_);
  std::size_t waiting = workers_.size();
  while (waiting > 0) {
    const int ready = ::poll(entries.data(), entries.size(), milliseconds_until(deadline));
    if (interrupt.signal() != 0) return "interrupted";
    if (ready == 0) break;
    for (std::size_t rank = 0; ready > 0 && rank < workers_.size(); ++rank) {
      if (entries[rank].revents == 0) continue;
      entries[rank].fd = -1;  // poll() skips it from now on
      --waiting;
      Reply& reply = (*replies)[rank];
      bool closed = false;
      if (Failure failure = receive_message(workers_[rank].socket, &reply, sizeof reply, &closed)) {
        died += (died.empty() ? "" : ", ") + who(rank) + (closed ? " died" : ": " + *failure);
      } else if (reply.ok == 0 && !may_refuse) {
        failed += (failed.empty() ? "" : "; ") + who(rank) + ": " + reply.text;
      } else {
        continue;
      }
      deadline = std::min(deadline, Clock::now() + kCauseWait);
    }
  }
  if (!died.empty()) return report(died + (failed.empty() ? "" : "; " + failed));
  if (!failed.empty()) return report(failed);
  if (waiting == 0) return std::nullopt;
  std::string silent;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (entries[rank].fd >= 0) silent += (silent.empty() ? "" : ", ") + who(rank);
  }
  kill_all(SIGTERM);
  return report(silent + " did not answer within " + std::to_string(static_cast<int>(timeout_s_)) +
                " s");
}

Failure Team::admit(const Hello& hello, Fd socket, pid_t pid) {
  if (hello.ranks != ranks_ || hello.rank < 0 || hello.rank >= ranks_) {
    return report("a worker says that it is rank " + std::to_string(hello.rank) + " of " +
                  std::to_string(hello.ranks) + "; expected one of " + std::to_string(ranks_));
  }
  Worker& worker = workers_[static_cast<std::size_t>(hello.rank)];
  if (worker.socket.is_open()) {
    return report("two workers say that they are rank " + std::to_string(hello.rank));
  }
  worker.socket = std::move(socket);
  worker.pid = pid;
  worker.process = open_process(pid);
  version_ = hello.version;
  devices_ = hello.devices;
  device_ = hello.device;
  ++connected_;
  return std::nullopt;
}

}  // namespace treering::perf
