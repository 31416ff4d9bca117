#include "tests/hosts/networks.hpp"

#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace treering::test {
namespace {

int run_shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A child in a network namespace of its own, which lives until it is killed.
pid_t start_holder() {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) return -1;
  const pid_t holder = ::fork();
  if (holder == 0) {
    const char ok = ::unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
    (void)!::write(ready[1], &ok, 1);
    for (;;) ::pause();
  }
  char ok = 'n';
  (void)!::read(ready[0], &ok, 1);
  ::close(ready[0]);
  ::close(ready[1]);
  if (ok == 'y') return holder;
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  return -1;
}

// Once a process: it moves to a namespace of its own, where the bridges are.
bool is_apart() {
  static const bool apart = ::unshare(CLONE_NEWNET) == 0 && run_shell("ip link set lo up") == 0;
  return apart;
}

}  // namespace

Networks::Networks(int hosts, bool with_addresses) {
  static int bridges = 0;
  const std::string bridge = "bridge" + std::to_string(bridges++);
  if (!is_apart() || !try_run(-1, "ip link add " + bridge + " type bridge && ip link set " +
                                      bridge + " up 2> /dev/null")) {
    why_ = "needs root, iproute2 and bridges: network namespaces of its own";
    return;
  }
  for (int i = 0; i < hosts; ++i) {
    const pid_t holder = start_holder();
    if (holder < 0) {
      why_ = "needs root: network namespaces of its own";
      return;
    }
    const std::string path = "/proc/" + std::to_string(holder) + "/ns/net";
    hosts_.emplace_back(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const std::string port = "port" + std::to_string(i);
    const bool linked =
        try_run(-1, "ip link del " + port + " 2> /dev/null; ip link add " + port +
                        " type veth peer name eth0 netns " + std::to_string(holder) +
                        " 2> /dev/null && ip link set " + port + " master " + bridge + " up");
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
    if (!linked) {
      why_ = "needs veth devices";
      return;
    }
    // No duplicate address detection, so that IPv6 addresses can be used at once.
    run(i,
        "ip link set lo up; echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad; "
        "ip link set eth0 up");
    if (with_addresses) run(i, "ip addr add " + address(i) + "/24 dev eth0");
  }
}

void Networks::enter(int host) const {
  if (::setns(hosts_[static_cast<std::size_t>(host)].get(), CLONE_NEWNET) != 0) std::abort();
}

bool Networks::try_run(int host, const std::string& command) const {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (host >= 0) enter(host);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

void Networks::run(int host, const std::string& command) const {
  if (try_run(host, command)) return;
  std::fprintf(stderr, "failed on host %d: %s\n", host, command.c_str());
  std::abort();
}

}  // namespace treering::test
