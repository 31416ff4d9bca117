#include "tuner/tuning.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/config.hpp"

namespace treering {
namespace {

constexpr std::string_view kTuningHead = "treering tuning 1";
constexpr std::size_t kMaxTuningBytes = std::size_t{1} << 20;

std::string_view next_word(std::string_view& line) {
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

template <class T>
bool parse_whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// What is wrong with a line; empty if nothing is.
std::string parse_curve(std::string_view line, TuningCurve& curve) {
  const std::string_view collective = next_word(line), algorithm = next_word(line);
  for (int c = 0; c < kNumCollectives; ++c) {
    if (collective == collective_name(static_cast<Collective>(c))) {
      curve.algorithm = algos::find_algorithm(static_cast<Collective>(c), algorithm);
    }
  }
  if (curve.algorithm == nullptr) {
    return "there is no algorithm '" + std::string(algorithm) + "' of '" + std::string(collective) +
           "'";
  }
  if (!parse_whole(next_word(line), curve.size) || curve.size < 1 || curve.size > kMaxRanks) {
    return "the third word must be a number of ranks, 1 to " + std::to_string(kMaxRanks);
  }
  for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
    const std::size_t colon = word.find(':');
    TuningPoint p;
    if (colon == std::string_view::npos || !parse_whole(word.substr(0, colon), p.bytes) ||
        !parse_whole(word.substr(colon + 1), p.us) || !std::isfinite(p.us) || p.us <= 0) {
      return "'" + std::string(word) + "' is not BYTES:MICROSECONDS";
    }
    if (!curve.points.empty() && curve.points.back().bytes >= p.bytes) {
      return "sizes must ascend, but " + std::to_string(p.bytes) + " follows " +
             std::to_string(curve.points.back().bytes);
    }
    curve.points.push_back(p);
  }
  return curve.points.size() < 2 ? "a curve needs two sizes or more" : "";
}

}  // namespace

Result<Tuning> Tuning::parse(std::string_view text, const std::string& name) {
  Tuning tuning;
  const auto bad = [&](int line, const std::string& why) {
    return invalid_argument(name + " line " + std::to_string(line) + ": " + why +
                            "; make the file with treering tune");
  };
  if (text.size() > kMaxTuningBytes) return bad(1, "more than 1 MiB is no tuning");
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (number == 1) {
      if (line != kTuningHead) return bad(1, "must be '" + std::string(kTuningHead) + "'");
      continue;
    }
    if (line.empty()) continue;
    if (line.front() == '#') {
      if (tuning.machine.empty() && line.size() > 2) tuning.machine = line.substr(2);
      continue;
    }
    TuningCurve curve;
    const std::string why = parse_curve(line, curve);
    if (!why.empty()) return bad(number, why);
    for (const TuningCurve& c : tuning.curves) {
      if (c.algorithm == curve.algorithm && c.size == curve.size) {
        return bad(number, "the same algorithm and ranks as a line before");
      }
    }
    tuning.curves.push_back(std::move(curve));
  }
  if (tuning.curves.empty()) return bad(1, "no curve follows");
  return tuning;
}

std::string Tuning::text() const {
  std::string text = std::string(kTuningHead) + "\n# " + machine + "\n";
  for (const TuningCurve& c : curves) {
    text += std::string(collective_name(c.algorithm->collective)) + " " + c.algorithm->name + " " +
            std::to_string(c.size);
    for (const TuningPoint& p : c.points) {
      char word[64];
      std::snprintf(word, sizeof word, " %llu:%.4g", static_cast<unsigned long long>(p.bytes),
                    p.us);
      text += word;
    }
    text += "\n";
  }
  return text;
}

std::optional<double> Tuning::predict_us(const algos::Algorithm& algorithm, int size,
                                         std::uint64_t bytes) const {
  const auto curve = std::find_if(curves.begin(), curves.end(), [&](const TuningCurve& c) {
    return c.algorithm == &algorithm && c.size == size;
  });
  if (curve == curves.end()) return std::nullopt;
  const std::vector<TuningPoint>& p = curve->points;
  if (bytes <= p.front().bytes) return p.front().us;
  std::size_t i = 1;
  while (i + 1 < p.size() && p[i].bytes < bytes) ++i;
  const TuningPoint &a = p[i - 1], &b = p[i];
  const double slope = (b.us - a.us) / static_cast<double>(b.bytes - a.bytes);
  const double us = a.us + slope * static_cast<double>(bytes - a.bytes);
  // A measured curve may fall a little from one size to the next; beyond the last it must not.
  return bytes > b.bytes ? std::max(us, b.us) : us;
}

}  // namespace treering
