#include "core/log.hpp"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

namespace treering {
namespace {

constexpr LogLevel kLevels[] = {LogLevel::kOff, LogLevel::kWarn, LogLevel::kInfo, LogLevel::kDebug};

// A function's static, because a line may be written while other static objects are being built.
std::atomic<LogLevel>& current_level() {
  static std::atomic<LogLevel> level = [] {
    const char* text = std::getenv("TR_LOG");
    return parse_log_level(text != nullptr ? text : "").value_or(LogLevel::kWarn);
  }();
  return level;
}

const char* line_word(LogLevel level) {
  return level == LogLevel::kWarn ? "warning" : log_level_name(level);
}

}  // namespace

const char* log_level_name(LogLevel level) {
  static constexpr const char* kNames[] = {"off", "warn", "info", "debug"};
  return kNames[static_cast<int>(level)];
}

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (LogLevel level : kLevels) {
    if (text == log_level_name(level)) return level;
  }
  return std::nullopt;
}

// Relaxed: the level orders nothing; a line more or less around set_log_level is harmless.
bool log_enabled(LogLevel level) {
  return level <= current_level().load(std::memory_order_relaxed);
}
void set_log_level(LogLevel level) { current_level().store(level, std::memory_order_relaxed); }

void log_line(LogLevel level, int rank, const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  std::va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);

  std::string prefix = "treering ";
  if (rank >= 0) prefix += "rank " + std::to_string(rank) + " ";
  prefix += std::string(line_word(level)) + ": ";

  std::string out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (begin == end && begin > 0) break;  // a final line break is no further line
    out += prefix + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  // A log line that cannot be written has nowhere else to go.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, out.data(), out.size());
}

}  // namespace treering
