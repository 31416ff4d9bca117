// What is computed along one row, or a segment of it, written once for host loops and kernels
// (elements.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "parallel/elements.hpp"

namespace tr::par {

struct RowScore {
  double loss;
  bool is_correct;  // the largest output is the label's
};

// loss = log(sum exp(y)) - y[label];  d loss / dy = softmax(y) - one_hot(label). dy may be nullptr.
template <class T, class A = Accumulator<T>>
TR_PAR_HD RowScore cross_entropy_row(const T* y, std::int64_t cols, std::int32_t label, A times,
                                     T* dy) {
  std::int64_t best = 0;
  for (std::int64_t j = 1; j < cols; ++j) {
    if (widen(y[j]) > widen(y[best])) best = j;
  }
  const A top = widen(y[best]);
  A sum{};
  for (std::int64_t j = 0; j < cols; ++j) sum += std::exp(widen(y[j]) - top);
  const double loss = std::log(static_cast<double>(sum)) +
                      (static_cast<double>(top) - static_cast<double>(widen(y[label])));
  for (std::int64_t j = 0; dy != nullptr && j < cols; ++j) {
    const A probability = std::exp(widen(y[j]) - top) / sum;
    dy[j] = narrow<T>((probability - (j == label ? A(1) : A(0))) * times);
  }
  return {loss, best == label};
}

// What is asked about all elements of a matrix is asked of segments of rows, which need not wait
// for each other; their answers are put together in order.
inline constexpr std::int64_t kSegment = 2048;
TR_PAR_HD constexpr std::int64_t segments_of(std::int64_t cols) {
  return (cols + kSegment - 1) / kSegment;
}
// Of the segment that begins at `first`.
TR_PAR_HD constexpr std::int64_t segment_size(std::int64_t cols, std::int64_t first) {
  return cols - first < kSegment ? cols - first : kSegment;
}

template <class T>
TR_PAR_HD double squares_of(const T* x, std::int64_t count) {
  constexpr int kLanes = 8;  // so that additions need not wait for each other
  double sums[kLanes] = {};
  std::int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = widen(x[j + lane]);
      sums[lane] += value * value;
    }
  }
  for (; j < count; ++j) sums[0] += static_cast<double>(widen(x[j])) * widen(x[j]);
  double sum = 0.0;
  for (const double lane : sums) sum += lane;
  return sum;
}

template <class T>
TR_PAR_HD bool is_finite(T x) {
  return std::abs(widen(x)) <= std::numeric_limits<Accumulator<T>>::max();
}

// Or count. Looks at all first: without an early end the loop is vectorised.
template <class T>
TR_PAR_HD std::int64_t first_not_finite(const T* x, std::int64_t count) {
  bool all_are = true;
  for (std::int64_t j = 0; j < count; ++j) all_are &= is_finite(x[j]);
  std::int64_t first = all_are ? count : 0;
  while (first < count && is_finite(x[first])) ++first;
  return first;
}

// Layer normalization.
template <class A>
struct RowStats {
  A mean, inverse_deviation;
  template <class T>
  TR_PAR_HD A normalized(T x) const {
    return (widen(x) - mean) * inverse_deviation;
  }
};

template <class T, class A = Accumulator<T>>
TR_PAR_HD RowStats<A> stats_of(const T* x, std::int64_t cols) {
  constexpr double kEpsilon = 1e-5;
  const A count = static_cast<A>(cols);
  A sum{}, squares{};
  for (std::int64_t j = 0; j < cols; ++j) sum += widen(x[j]);
  const A mean = sum / count;
  for (std::int64_t j = 0; j < cols; ++j) squares += (widen(x[j]) - mean) * (widen(x[j]) - mean);
  return {mean, A(1) / std::sqrt(squares / count + A(kEpsilon))};
}

template <class T, class A = Accumulator<T>>
TR_PAR_HD void norm_row(const T* x, const T* gamma, const T* beta, const RowStats<A>& stats, T* y,
                        std::int64_t cols) {
  for (std::int64_t j = 0; j < cols; ++j) {
    y[j] = narrow<T>(stats.normalized(x[j]) * widen(gamma[j]) + widen(beta[j]));
  }
}

// xh = (x - mean) / deviation, g = dy gamma:  dx = (g - mean(g) - xh mean(g xh)) / deviation
template <class T, class A = Accumulator<T>>
TR_PAR_HD void norm_backward_row(const T* x, const T* gamma, const RowStats<A>& stats, const T* dy,
                                 T* dx, std::int64_t cols) {
  A sum{}, along{};
  for (std::int64_t j = 0; j < cols; ++j) {
    const A g = widen(dy[j]) * widen(gamma[j]);
    sum += g;
    along += g * stats.normalized(x[j]);
  }
  sum /= static_cast<A>(cols);
  along /= static_cast<A>(cols);
  for (std::int64_t j = 0; j < cols; ++j) {
    const A g = widen(dy[j]) * widen(gamma[j]);
    dx[j] = narrow<T>((g - sum - stats.normalized(x[j]) * along) * stats.inverse_deviation);
  }
}

}  // namespace tr::par
