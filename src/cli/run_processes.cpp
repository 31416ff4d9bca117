#include "cli/run_processes.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <dirent.h>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace treering::run {
namespace {

struct Process {
  pid_t pid;
  pid_t parent;
  pid_t group;
  char state;
  unsigned flags;  // of the kernel's
};

// False: the process ends while we look, or is not ours.
bool read_process(const std::string& pid, Process& process) {
  std::ifstream file("/proc/" + pid + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // "123 (name, which may hold anything) S parent group session terminal its_group flags ..."
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos &&
         std::sscanf(text.c_str() + name_end + 1, " %c %d %d %*d %*d %*d %u", &process.state,
                     &process.parent, &process.group, &process.flags) == 4;
}

// Of all processes of the machine that could be read.
std::vector<Process> all_processes() {
  std::vector<Process> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (!proc) return all;
  while (const dirent* entry = ::readdir(proc.get())) {
    const std::string name = entry->d_name;
    Process process{};
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process.pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (read_process(name, process)) all.push_back(process);
  }
  return all;
}

std::vector<Process> processes_below(pid_t top) {
  std::multimap<pid_t, Process> by_parent;
  for (const Process& process : all_processes()) by_parent.emplace(process.parent, process);
  std::vector<Process> below;
  std::vector<pid_t> parents{top};
  while (!parents.empty()) {
    const auto [begin, end] = by_parent.equal_range(parents.back());
    parents.pop_back();
    for (auto it = begin; it != end; ++it) {
      below.push_back(it->second);
      parents.push_back(it->second.pid);
    }
  }
  std::erase_if(below, [](const Process& process) { return process.state == 'Z'; });
  return below;
}

}  // namespace

bool is_dying(pid_t pid) {
  constexpr unsigned kExiting = 0x4;  // PF_EXITING of the kernel's sched.h: no code of it runs
  constexpr unsigned kSignalled =
      0x400;  // PF_SIGNALED: a signal has ended it; it may dump core yet
  Process process{};
  return read_process(std::to_string(pid), process) &&
         (process.flags & (kExiting | kSignalled)) != 0;
}

std::vector<pid_t> descendants() {
  std::vector<pid_t> pids;
  for (const Process& process : processes_below(::getpid())) pids.push_back(process.pid);
  return pids;
}

std::size_t signal_descendants(int signal) {
  const std::vector<Process> below = processes_below(::getpid());
  const pid_t own_group = ::getpgrp();
  // By group first: that reaches a process which is being forked at this moment.
  std::set<pid_t> groups;
  for (const Process& process : below) {
    if (process.group != own_group && groups.insert(process.group).second) {
      ::kill(-process.group, signal);
    }
  }
  for (const Process& process : below) {
    if (process.group == own_group) ::kill(process.pid, signal);
  }
  return below.size();
}

std::vector<pid_t> kill_descendants() {
  for (int round = 0;; ++round) {
    const std::size_t left = signal_descendants(SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (left == 0) return {};
    if (round == 200) return descendants();
    ::usleep(10'000);
  }
}

}  // namespace treering::run
