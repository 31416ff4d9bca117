// The examples stop at the first error: what, where, exit status 1.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <source_location>
#include <utility>

#include "treering/result.hpp"

namespace example {

using Where = std::source_location;

// Without its folders.
inline const char* file_of(const Where& where) {
  const char* const slash = std::strrchr(where.file_name(), '/');
  return slash == nullptr ? where.file_name() : slash + 1;
}

// Ranks may be threads that fail together: the first one speaks, and ends the program at once.
[[noreturn]] inline void stop(const tr::Error& error, const Where& where) {
  static std::mutex first;
  first.lock();
  std::fflush(stdout);
  std::fprintf(stderr, "error: %s (%s:%u)\n", error.message.c_str(), file_of(where), where.line());
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
  std::fprintf(stderr, "error: wrong: %s (%s:%u)\n", claim, file_of(where), where.line());
  std::exit(1);
}

}  // namespace example
