#include "cli/run_spawn.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

namespace treering::run {
namespace {

void set_variables(const Options& options, const Job& job, int rank) {
  const std::string rank_text = std::to_string(rank);
  const std::string size_text = std::to_string(options.ranks);
  const std::pair<const char*, std::string> variables[] = {
      {"TR_RANK", rank_text},
      {"TR_SIZE", size_text},
      {"TR_LOCAL_RANK", rank_text},
      {"TR_LOCAL_SIZE", size_text},
      {"TR_JOB_KEY", job.key},
      // torchrun's, for programs that know only these.
      {"RANK", rank_text},
      {"WORLD_SIZE", size_text},
      {"LOCAL_RANK", rank_text},
      {"LOCAL_WORLD_SIZE", size_text},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", job.master_port},
  };
  for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
}

// In the child: becomes the program, or tells why not.
[[noreturn]] void become(const Options& options, const Job& job, int rank, pid_t parent, int input,
                         int out, int err, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitLauncher);  // it had died before prctl
  ::sigprocmask(SIG_SETMASK, &job.signal_mask, nullptr);
  ::setrlimit(RLIMIT_NOFILE, &job.file_limit);
  ::dup2(input, STDIN_FILENO);
  if (out >= 0) ::dup2(out, STDOUT_FILENO);
  if (err >= 0) ::dup2(err, STDERR_FILENO);
  set_variables(options, job, rank);
  std::vector<char*> arguments;
  for (const std::string& argument : options.program) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &error, sizeof error);
  ::_exit(kExitNotFound);
}

}  // namespace

Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    const Status failure = system_error("cannot create a pipe", errno);
    if (errno != EMFILE) return failure;
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return Status(failure.code(), failure.message() + ": raise the limit of open files, here " +
                                      std::to_string(limit.rlim_cur) +
                                      " (ulimit -n), or start fewer ranks");
  }
  Pipe pipe;
  pipe.read.reset(fds[0]);
  pipe.write.reset(fds[1]);
  return pipe;
}

Result<Job> make_job(const sigset_t& signal_mask) {
  Job job;
  job.signal_mask = signal_mask;
  ::getrlimit(RLIMIT_NOFILE, &job.file_limit);
  unsigned char key[16];
  if (::getrandom(key, sizeof key, 0) != sizeof key) {
    return system_error("cannot get random bytes for the job's key", errno);
  }
  for (unsigned char byte : key) {
    job.key += "0123456789abcdef"[byte >> 4];
    job.key += "0123456789abcdef"[byte & 15];
  }
  // A port that is free now. Treering does not use it (bootstrap/bootstrap.hpp), other libraries
  // may.
  const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(probe.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return system_error("cannot find a free port for MASTER_PORT", errno);
  }
  job.master_port = std::to_string(ntohs(address.sin_port));
  return job;
}

Result<RankProcess> spawn_rank(const Options& options, const Job& job, int rank, int input,
                               int& errno_value) {
  RankProcess process;
  Pipe out;
  Pipe err;
  if (options.prefix) {
    TR_ASSIGN_OR_RETURN(out, make_pipe());
    TR_ASSIGN_OR_RETURN(err, make_pipe());
  }
  TR_ASSIGN_OR_RETURN(Pipe report, make_pipe());
  const pid_t parent = ::getpid();
  process.pid = ::fork();
  if (process.pid < 0) {
    return system_error("cannot start rank " + std::to_string(rank), errno);
  }
  if (process.pid == 0) {
    become(options, job, rank, parent, input, out.write.get(), err.write.get(), report.write.get());
  }
  // Twice, in parent and child: whoever comes first, the group exists from here on.
  ::setpgid(process.pid, process.pid);
  report.write.reset();
  ssize_t bytes = 0;
  do {
    bytes = ::read(report.read.get(), &errno_value, sizeof errno_value);
  } while (bytes < 0 && errno == EINTR);
  if (bytes == sizeof errno_value) {
    const Status why = system_error("cannot run '" + options.program[0] + "'", errno_value);
    return invalid_argument(why.message());
  }
  errno_value = 0;
  process.out = std::move(out.read);
  process.err = std::move(err.read);
  return process;
}

}  // namespace treering::run
