// Losses, and what is asked about all elements at once, on the host.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "parallel/checks.hpp"
#include "parallel/host_compute.hpp"
#include "parallel/number.hpp"

namespace tr::par {
namespace {

// loss = log(sum exp(y)) - y[label];  d loss / dy = softmax(y) - one_hot(label). dy may be nullptr.
template <class T, class A = Accumulator<T>>
void cross_entropy_row(const T* y, std::int64_t cols, std::int32_t label, A times, T* dy,
                       Score& score) {
  std::int64_t best = 0;
  for (std::int64_t j = 1; j < cols; ++j) {
    if (widen(y[j]) > widen(y[best])) best = j;
  }
  const A top = widen(y[best]);
  A sum{};
  for (std::int64_t j = 0; j < cols; ++j) sum += std::exp(widen(y[j]) - top);
  score.loss_sum += std::log(static_cast<double>(sum)) +
                    (static_cast<double>(top) - static_cast<double>(widen(y[label])));
  score.correct += best == label;
  if (dy == nullptr) return;
  for (std::int64_t j = 0; j < cols; ++j) {
    const A probability = std::exp(widen(y[j]) - top) / sum;
    dy[j] = narrow<T>((probability - (j == label ? A(1) : A(0))) * times);
  }
}

template <class T>
double squares_of(const View& x) {
  constexpr int kLanes = 8;  // so that additions need not wait for each other
  std::array<double, kLanes> sums{};
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const T* from = row_of<T>(x, row);
    std::int64_t j = 0;
    for (; j + kLanes <= x.cols; j += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const double value = widen(from[j + lane]);
        sums[lane] += value * value;
      }
    }
    for (; j < x.cols; ++j) sums[0] += static_cast<double>(widen(from[j])) * widen(from[j]);
  }
  double sum = 0.0;
  for (const double lane : sums) sum += lane;
  return sum;
}

template <class T>
bool is_finite(T x) {
  return std::abs(widen(x)) <= std::numeric_limits<Accumulator<T>>::max();
}

// Looks at whole rows first: without an early end the loop is vectorised.
template <class T>
std::optional<std::int64_t> first_not_finite(const View& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const T* from = row_of<T>(x, row);
    bool all_are = true;
    for (std::int64_t j = 0; j < x.cols; ++j) all_are &= is_finite(from[j]);
    if (all_are) continue;
    const T* const end = from + x.cols;
    return row * x.cols + (std::find_if_not(from, end, is_finite<T>) - from);
  }
  return std::nullopt;
}

}  // namespace

Result<Score> HostCompute::cross_entropy(const View& logits, std::span<const std::int32_t> labels,
                                         double normalizer, double factor, const View& dlogits) {
  if (Status ok = check_loss("cross_entropy", logits, normalizer, dlogits); !ok) return ok.error();
  if (Status ok = check_labels(logits, labels); !ok) return ok.error();
  Score score;
  score.rows = logits.rows;
  with_type(logits.type, [&](auto element) {
    using T = decltype(element);
    const auto times = static_cast<Accumulator<T>>(factor / normalizer);
    for (std::int64_t row = 0; row < logits.rows; ++row) {
      T* dy = dlogits.data == nullptr ? nullptr : row_of<T>(dlogits, row);
      cross_entropy_row(row_of<T>(logits, row), logits.cols, labels[row], times, dy, score);
    }
  });
  return score;
}

Result<Score> HostCompute::mean_square(const View& outputs, double normalizer, double factor,
                                       const View& doutputs) {
  if (Status ok = check_loss("mean_square", outputs, normalizer, doutputs); !ok) return ok.error();
  Score score;
  score.rows = outputs.rows;
  with_type(outputs.type, [&](auto element) {
    using T = decltype(element);
    const auto times = static_cast<Accumulator<T>>(2.0 * factor / normalizer);
    score.loss_sum = squares_of<T>(outputs);
    if (doutputs.data == nullptr) return;
    for (std::int64_t row = 0; row < outputs.rows; ++row) {
      const T* y = row_of<T>(outputs, row);
      T* dy = row_of<T>(doutputs, row);
      for (std::int64_t j = 0; j < outputs.cols; ++j) dy[j] = narrow<T>(widen(y[j]) * times);
    }
  });
  return score;
}

Result<double> HostCompute::sum_of_squares(const View& x) {
  if (Status ok = check_views("sum_of_squares", {x}); !ok) return ok.error();
  return with_type(x.type, [&](auto element) { return squares_of<decltype(element)>(x); });
}

Result<std::optional<std::int64_t>> HostCompute::find_not_finite(const View& x) {
  if (Status ok = check_views("find_not_finite", {x}); !ok) return ok.error();
  return with_type(x.type, [&](auto element) { return first_not_finite<decltype(element)>(x); });
}

}  // namespace tr::par
