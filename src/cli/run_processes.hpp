// Finding and ending all processes below this one, whatever groups and sessions they made for
// themselves.
//
// The caller is a child subreaper (PR_SET_CHILD_SUBREAPER), so that a process whose parent has died
// is still below it.
#pragma once

#include <sys/types.h>
#include <vector>

namespace treering::run {

// The process runs no more, but has not ended yet either: its memory and files are being freed.
bool is_dying(pid_t pid);

// Every process below this one that is not a zombie.
std::vector<pid_t> descendants();

// Sends the signal to all of them and to their process groups. Returns how many there were.
std::size_t signal_descendants(int signal);

// SIGKILL until none is left, and reaps all children. Returns those that are there still after a
// while: processes of another user.
std::vector<pid_t> kill_descendants();

}  // namespace treering::run
