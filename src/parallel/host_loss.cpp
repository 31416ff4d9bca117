// Losses, and what is asked about all elements at once, on the host.

#include "parallel/checks.hpp"
#include "parallel/host_compute.hpp"
#include "parallel/rows.hpp"

namespace tr::par {
namespace {

template <class T>
double sum_of_squares_in(const View& x) {
  double sum = 0.0;
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t j = 0; j < x.cols; j += kSegment) {
      sum += squares_of(row_of<T>(x, row) + j, segment_size(x.cols, j));
    }
  }
  return sum;
}

template <class T>
std::optional<std::int64_t> first_not_finite_in(const View& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const std::int64_t first = first_not_finite(row_of<T>(x, row), x.cols);
    if (first < x.cols) return row * x.cols + first;
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
      const RowScore of_row =
          cross_entropy_row(row_of<T>(logits, row), logits.cols, labels[row], times, dy);
      score.loss_sum += of_row.loss;
      score.correct += of_row.is_correct;
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
    score.loss_sum = sum_of_squares_in<T>(outputs);
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
  return with_type(x.type, [&](auto element) { return sum_of_squares_in<decltype(element)>(x); });
}

Result<std::optional<std::int64_t>> HostCompute::find_not_finite(const View& x) {
  if (Status ok = check_views("find_not_finite", {x}); !ok) return ok.error();
  return with_type(x.type, [&](auto element) { return first_not_finite_in<decltype(element)>(x); });
}

}  // namespace tr::par
