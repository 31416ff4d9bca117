#include "transports/process.hpp"

#include <cerrno>
#include <map>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <string>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace treering {
namespace {

UniqueFd open_pidfd(pid_t pid) {  // the kernel closes it on exec
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

struct Watches {
  std::mutex mutex;
  std::map<pid_t, std::weak_ptr<ProcessWatch>> by_pid;
};
// Never destroyed: a watch may outlive the static objects of this file.
Watches& watches() {
  static Watches* const kWatches = new Watches;
  return *kWatches;
}

struct OwnName {
  std::mutex mutex;
  bool known = false;
  Token token{};
};
OwnName& own_name() {
  static OwnName* const kName = new OwnName;
  return *kName;
}

}  // namespace

Result<Token> random_token() {
  Token token{};
  // Up to 256 bytes come whole or not at all.
  while (::getrandom(token.data(), sizeof(token), 0) != static_cast<ssize_t>(sizeof(token)))
    if (errno != EINTR) return system_error("cannot get random bytes (getrandom)", errno);
  return token;
}

Result<Token> process_token() {
  OwnName& name = own_name();
  // The mutex is held over fork, so that the child finds it free and the name consistent.
  static const int kRegistered =
      ::pthread_atfork([] { own_name().mutex.lock(); }, [] { own_name().mutex.unlock(); },
                       [] {
                         own_name().known = false;
                         own_name().mutex.unlock();
                       });
  if (kRegistered != 0) return system_error("cannot follow forks (pthread_atfork)", kRegistered);
  const std::lock_guard lock(name.mutex);
  if (!name.known) {
    TR_ASSIGN_OR_RETURN(name.token, random_token());
    name.known = true;
  }
  return name.token;
}

bool pidfds_work() {
  static const bool kWork = open_pidfd(::getpid()).valid();
  return kWork;
}

Result<std::shared_ptr<ProcessWatch>> ProcessWatch::of(pid_t pid) {
  std::shared_ptr<ProcessWatch> known;  // outlives the lock: it may turn out to be the last owner
  const std::lock_guard lock(watches().mutex);
  const auto it = watches().by_pid.find(pid);
  if (it != watches().by_pid.end()) {
    known = it->second.lock();
    // An ended one belongs to a former process with this number.
    if (known && !known->ended()) return known;
  }
  UniqueFd fd = open_pidfd(pid);
  if (!fd.valid())
    return system_error("cannot watch process " + std::to_string(pid) + " (pidfd_open)", errno);
  auto watch = std::make_shared<ProcessWatch>(pid, std::move(fd));
  watches().by_pid[pid] = watch;
  return watch;
}

ProcessWatch::~ProcessWatch() {
  const std::lock_guard lock(watches().mutex);
  const auto it = watches().by_pid.find(pid_);
  if (it != watches().by_pid.end() && it->second.expired()) watches().by_pid.erase(it);
}

bool ProcessWatch::ended() const {
  pollfd entry{fd_.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace treering
