// Log lines to stderr, chosen by TR_LOG. When a level is off, a line costs one relaxed load: its
// arguments are not evaluated and nothing is allocated.
//
//   TR_LOG_WARN(rank, "waits for %s for %.1f s", who, seconds);
//   -> "treering rank 2 warning: waits for ranks 0, 3 for 30.0 s"
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace treering {

enum class LogLevel : std::uint8_t { kOff, kWarn, kInfo, kDebug };

const char* log_level_name(LogLevel level);                      // "warn"
std::optional<LogLevel> parse_log_level(std::string_view text);  // "off", "warn", "info", "debug"

// The level is read from TR_LOG at the first use in a process (a bad value: the default, and
// load_config() reports it); set_log_level replaces it. Any thread.
bool log_enabled(LogLevel level);
void set_log_level(LogLevel level);

// Written by one system call, so that lines of ranks do not mix; each line of a text of several
// lines gets the prefix. rank < 0: no rank is named.
[[gnu::format(printf, 3, 4)]] void log_line(LogLevel level, int rank, const char* format, ...);

}  // namespace treering

#define TR_LOG_AT(level, rank, ...)                                                         \
  do {                                                                                      \
    if (::treering::log_enabled(level)) ::treering::log_line((level), (rank), __VA_ARGS__); \
  } while (0)
#define TR_LOG_WARN(rank, ...) TR_LOG_AT(::treering::LogLevel::kWarn, rank, __VA_ARGS__)
#define TR_LOG_INFO(rank, ...) TR_LOG_AT(::treering::LogLevel::kInfo, rank, __VA_ARGS__)
#define TR_LOG_DEBUG(rank, ...) TR_LOG_AT(::treering::LogLevel::kDebug, rank, __VA_ARGS__)
