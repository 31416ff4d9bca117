#include "cli/perf/private_dir.hpp"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace treering::perf {
namespace {

namespace fs = std::filesystem;

// How the keeper answers once.
struct Made {
  int errno_value = 0;
  char path[PATH_MAX] = {};
};

void make(Made* made) {
  const char* temporary = std::getenv("TMPDIR");
  for (const char* base : {"/dev/shm", temporary, "/tmp"}) {
    if (base == nullptr) continue;
    std::string path = std::string(base) + "/treering-perf-XXXXXX";
    if (path.size() >= sizeof made->path) continue;
    copy_text(path, made->path);
    if (::mkdtemp(made->path) != nullptr) {
      made->errno_value = 0;
      return;
    }
    made->errno_value = errno;
  }
}

void remove_tree(const std::string& path) {
  std::error_code ignored;  // a directory that is gone already is as good
  fs::remove_all(path, ignored);
}

// The keeper keeps nothing of the driver's: no terminal, no signal meant for it, no pipe of its
// output that a reader waits for the end of.
void let_go(int socket) {
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  ::prctl(PR_SET_NAME, "perf-keeper");
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  constexpr int kFirst = STDERR_FILENO + 1;
  ::dup2(socket, kFirst);
  ::close_range(kFirst + 1, ~0u, 0);
  [[maybe_unused]] const int moved = ::chdir("/");
}

[[noreturn]] void keep(int socket) {
  let_go(socket);
  constexpr int kSocket = STDERR_FILENO + 1;
  Made made;
  make(&made);
  [[maybe_unused]] const ssize_t sent = ::send(kSocket, &made, sizeof made, MSG_NOSIGNAL);
  char end;
  while (::recv(kSocket, &end, 1, 0) < 0 && errno == EINTR) {
  }
  // A launcher closes what it inherited before it starts its workers: one that was killed with the
  // driver may have left workers that are just noticing it, and write a last time.
  constexpr int kMostLooks = 100;
  constexpr int kQuietLooks = 10;
  constexpr useconds_t kBetweenUs = 100'000;
  for (int look = 0, quiet = 0; look < kMostLooks && quiet < kQuietLooks; ++look) {
    quiet = ::access(made.path, F_OK) == 0 ? 0 : quiet + 1;
    remove_tree(made.path);
    ::usleep(kBetweenUs);
  }
  ::_exit(0);
}

}  // namespace

Failure PrivateDir::create() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return with_errno("cannot create a socket", errno);
  }
  hold_ = Fd(ends[0]);
  Fd theirs(ends[1]);
  keeper_ = ::fork();
  if (keeper_ == 0) keep(theirs.fd());
  if (keeper_ < 0) {
    keeper_ = 0;
    return with_errno("cannot start a process", errno);
  }
  theirs = Fd();
  Made made;
  if (Failure failure = receive_message(hold_, &made, sizeof made)) {
    return "cannot create a directory: " + *failure;
  }
  if (made.errno_value != 0) {
    return with_errno("cannot create a directory in /dev/shm, $TMPDIR or /tmp", made.errno_value);
  }
  path_ = made.path;
  return std::nullopt;
}

void PrivateDir::remove() {
  if (!path_.empty()) remove_tree(path_);
  path_.clear();
  hold_ = Fd();
  if (keeper_ == 0) return;
  ::kill(keeper_, SIGKILL);
  ::waitpid(keeper_, nullptr, 0);
  keeper_ = 0;
}

}  // namespace treering::perf
