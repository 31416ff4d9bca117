// The command line of the ladder.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace ladder {

inline constexpr int kNumSteps = 6;
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

inline constexpr char kUsage[] =
    "usage: ladder [--ranks N] [--bytes B] [--steps 1,3,5] [--channels C] [--runs R] [--timeout "
    "S]\n"
    "              [--stall RANK]\n"
    "  --ranks     2 to 8 (default 4): threads of this process, all on device 0\n"
    "  --bytes     of each rank's vector, a multiple of 4 up to 1G; K, M and G are understood\n"
    "              (default 1M)\n"
    "  --steps     which ones, 1 to 6 (default: all)\n"
    "  --channels  blocks of steps 4 and 5, 1 to 16 (default 4)\n"
    "  --runs      how many are timed (default 5)\n"
    "  --timeout   seconds until a wait gives up (default 20)\n"
    "  --stall     this rank does not take part: see who waits for whom\n";

struct Options {
  int ranks = 4;
  std::uint64_t bytes = 1 << 20;
  std::vector<int> steps = {1, 2, 3, 4, 5, 6};
  int channels = 4;
  int library_channels = 4;  // of step 6; the driver finds out
  int runs = 5;
  double timeout_s = 20;
  int stall = -1;
};

// Says what is wrong with the arguments; exit status 2.
[[noreturn]] __attribute__((format(printf, 1, 2))) inline void refuse(const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  std::fprintf(stderr, "ladder: ");
  std::vfprintf(stderr, format, args);
  std::fprintf(stderr, "\n");
  va_end(args);
  std::exit(2);
}

// `text` as a whole number from `least` to `most`.
inline std::uint64_t number(const char* option, const std::string& text, std::uint64_t least,
                            std::uint64_t most) {
  const bool digits = !text.empty() && text.size() <= 12 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  const std::uint64_t value = digits ? std::strtoull(text.c_str(), nullptr, 10) : 0;
  if (!digits || value < least || value > most) {
    refuse("%s %s: must be a whole number from %llu to %llu", option, text.c_str(),
           static_cast<unsigned long long>(least), static_cast<unsigned long long>(most));
  }
  return value;
}

inline std::uint64_t bytes_of(std::string text) {
  std::uint64_t unit = 1;
  if (const char* at = text.empty() ? nullptr : std::strchr("KMG", text.back()); at != nullptr) {
    unit = *at == 'K' ? 1 << 10 : *at == 'M' ? 1 << 20 : 1 << 30;
    text.pop_back();
  }
  const std::uint64_t bytes = unit * number("--bytes", text, 1, kMostBytes / unit);
  if (bytes % 4 != 0) refuse("--bytes %s: must be a multiple of 4, whole floats", text.c_str());
  return bytes;
}

inline std::vector<int> steps_of(const std::string& text) {
  std::vector<int> steps;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    steps.push_back(static_cast<int>(number("--steps", text.substr(at, comma - at), 1, kNumSteps)));
    at = comma + 1;
  }
  return steps;
}

inline double seconds_of(const std::string& text) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !std::isfinite(seconds) || seconds < 0.01 ||
      seconds > 3600) {
    refuse("--timeout %s: must be seconds, from 0.01 to 3600", text.c_str());
  }
  return seconds;
}

inline Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--help" || option == "-h") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    }
    const auto is = [&](const char* name) { return option == name; };
    if (!is("--ranks") && !is("--bytes") && !is("--steps") && !is("--channels") && !is("--runs") &&
        !is("--timeout") && !is("--stall")) {
      refuse("unknown argument %s\n%s", argv[i], kUsage);
    }
    if (i + 1 == argc) refuse("%s needs a value\n%s", argv[i], kUsage);
    const std::string value = argv[i + 1];
    if (is("--ranks")) options.ranks = static_cast<int>(number("--ranks", value, 2, 8));
    if (is("--bytes")) options.bytes = bytes_of(value);
    if (is("--steps")) options.steps = steps_of(value);
    if (is("--channels")) options.channels = static_cast<int>(number("--channels", value, 1, 16));
    if (is("--runs")) options.runs = static_cast<int>(number("--runs", value, 1, 1000));
    if (is("--timeout")) options.timeout_s = seconds_of(value);
    if (is("--stall")) options.stall = static_cast<int>(number("--stall", value, 0, 7));
  }
  if (options.stall >= options.ranks) {
    refuse("--stall %d: there are %d ranks, from 0 on", options.stall, options.ranks);
  }
  return options;
}

}  // namespace ladder
