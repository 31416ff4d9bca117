// Tuning: what each algorithm took on a machine, as `treering tune` has measured it, and what it
// will take.
//
// A prediction lies on the straight line between the two measured sizes around it, and goes on
// beyond the last at the pace of the last two; so it is the cost model of an algorithm, latency
// and time a byte, made of pieces. Only numbers of ranks that were measured are predicted.
//
// The text that stores it is lines: what was measured where, in words, and then a curve each:
//     treering tuning 1
//     # AMD EPYC, 2 cores
//     all_reduce ring 4 8:5.2 4096:7.5 1048576:410
// that is the collective, the algorithm, the ranks, and BYTES:MICROSECONDS in ascending order.
// Bytes are those that a choice is made by (ChoiceInput::bytes).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "algos/registry.hpp"
#include "core/status.hpp"
#include "core/types.hpp"

namespace treering {

struct TuningPoint {
  std::uint64_t bytes = 0;
  double us = 0;
};

struct TuningCurve {
  const algos::Algorithm* algorithm = nullptr;
  int size = 0;
  std::vector<TuningPoint> points;  // ascending
};

class Tuning {
 public:
  // An error names the line and what is wrong with it. `name`: of the file, for that.
  static Result<Tuning> parse(std::string_view text, const std::string& name);
  std::string text() const;

  std::string machine;  // in words, one line
  std::vector<TuningCurve> curves;

  // Nothing, if the algorithm was not measured with so many ranks.
  std::optional<double> predict_us(const algos::Algorithm& algorithm, int size,
                                   std::uint64_t bytes) const;
};

}  // namespace treering
