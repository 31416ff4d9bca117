// `treering run`: what was asked for.
#pragma once

#include <string>
#include <vector>

namespace treering::run {

struct Options {
  int ranks = 1;
  double timeout_s = 0;  // 0: none
  bool prefix =
      true;  // "[2] " before each line; otherwise the ranks write to our output themselves
  std::vector<std::string> program;  // and its arguments
};

inline constexpr int kMaxLocalRanks = 4096;

// Exit statuses of our own, as shells and `timeout` have them.
inline constexpr int kExitTimeout = 124;
inline constexpr int kExitCannotRun = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignal = 128;    // plus the signal's number
inline constexpr int kExitLauncher = 125;  // the launcher itself failed

}  // namespace treering::run
