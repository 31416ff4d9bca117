#include "transports/tcp/fork_guard.hpp"

#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <set>
#include <unistd.h>
#include <utility>

namespace treering::tcp {
namespace {

struct Guarded {
  std::mutex mutex;
  std::set<int> descriptors;
};
Guarded& guarded() {
  static Guarded* const instance = new Guarded;  // never destroyed: forks may come at exit
  return *instance;
}

void before_fork() { guarded().mutex.lock(); }
void in_parent() { guarded().mutex.unlock(); }
void in_child() {
  const int empty = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int descriptor : guarded().descriptors) {
    if (empty >= 0) (void)::dup3(empty, descriptor, O_CLOEXEC);
  }
  if (empty >= 0) ::close(empty);
  guarded().mutex.unlock();
}

}  // namespace

ForkGuard::ForkGuard(std::vector<int> descriptors) : descriptors_(std::move(descriptors)) {
  static const int registered = ::pthread_atfork(before_fork, in_parent, in_child);
  (void)registered;
  std::lock_guard lock(guarded().mutex);
  guarded().descriptors.insert(descriptors_.begin(), descriptors_.end());
}

ForkGuard::~ForkGuard() {
  std::lock_guard lock(guarded().mutex);
  for (const int descriptor : descriptors_) guarded().descriptors.erase(descriptor);
}

}  // namespace treering::tcp
