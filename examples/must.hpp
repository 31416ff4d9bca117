// The examples stop at the first error: where, what, exit status 1.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <source_location>
#include <utility>

#include "treering/result.hpp"

namespace example {

using Where = std::source_location;

// Ranks may be threads that fail together: the first one speaks, and ends the program at once.
[[noreturn]] inline void stop(const tr::Error& error, const Where& where) {
  static std::mutex first;
  first.lock();
  std::fflush(stdout);
  std::fprintf(stderr, "%s:%u: %s\n", where.file_name(), where.line(), error.message.c_str());
  std::_Exit(1);
}

template <class T>
T must(tr::Result<T> result, const Where& where = Where::current()) {
  if (!result) stop(result.error(), where);
  return std::move(result).value();
}

inline void must(tr::Status status, const Where& where = Where::current()) {
  if (!status) stop(status.error(), where);
}

// A result that the example claims; a false one ends it.
inline void check(bool holds, const char* claim, const Where& where = Where::current()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: wrong: %s\n", where.file_name(), where.line(), claim);
  std::exit(1);
}

}  // namespace example
