// Rows, columns and segments on a GPU: a thread takes one of them, in the host's order.
#include "parallel/checks.hpp"
#include "parallel/cuda_compute.hpp"
#include "parallel/cuda_loop.cuh"
#include "parallel/rows.hpp"
#include "parallel/try.hpp"

namespace tr::par {
namespace {

// At (0, col). Rows in order.
template <class T, class R>
struct SumColumn {
  View x, row;
  Update update;
  TR_PAR_HD void operator()(std::int64_t, std::int64_t col) const {
    Accumulator<T> sum{};
    for (std::int64_t i = 0; i < x.rows; ++i) sum += widen(row_of<T>(x, i)[col]);
    store(row_of<R>(row, 0)[col], static_cast<Accumulator<R>>(sum), update);
  }
};

// At (row, 0).
template <class T>
struct Norm {
  View x, gamma, beta, y, stats;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t) const {
    using A = Accumulator<T>;
    const T* from = row_of<T>(x, row);
    const RowStats<A> of_row = stats_of(from, x.cols);
    row_of<A>(stats, row)[0] = of_row.mean;
    row_of<A>(stats, row)[1] = of_row.inverse_deviation;
    norm_row(from, row_of<T>(gamma, 0), row_of<T>(beta, 0), of_row, row_of<T>(y, row), x.cols);
  }
};

template <class A>
TR_PAR_HD RowStats<A> read_stats(const View& stats, std::int64_t row) {
  return {row_of<A>(stats, row)[0], row_of<A>(stats, row)[1]};
}

// At (row, 0).
template <class T>
struct NormBackward {
  View x, gamma, stats, dy, dx;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t) const {
    norm_backward_row(row_of<T>(x, row), row_of<T>(gamma, 0),
                      read_stats<Accumulator<T>>(stats, row), row_of<T>(dy, row),
                      row_of<T>(dx, row), x.cols);
  }
};

// At (0, col). Rows in order.
template <class T, class R>
struct NormParameters {
  View x, stats, dy, dgamma, dbeta;
  Update update;
  TR_PAR_HD void operator()(std::int64_t, std::int64_t col) const {
    using A = Accumulator<T>;
    A gamma_sum{}, beta_sum{};
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const A slope = widen(row_of<T>(dy, i)[col]);
      gamma_sum += slope * read_stats<A>(stats, i).normalized(row_of<T>(x, i)[col]);
      beta_sum += slope;
    }
    store(row_of<R>(dgamma, 0)[col], gamma_sum, update);
    store(row_of<R>(dbeta, 0)[col], beta_sum, update);
  }
};

// At (row, 0). scores: a row of loss and 1 or 0.
template <class T>
struct CrossEntropy {
  View y;
  const std::int32_t* labels;
  Accumulator<T> times;
  View dy, scores;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t) const {
    T* slope = dy.data == nullptr ? nullptr : row_of<T>(dy, row);
    const RowScore of_row = cross_entropy_row(row_of<T>(y, row), y.cols, labels[row], times, slope);
    row_of<double>(scores, row)[0] = of_row.loss;
    row_of<double>(scores, row)[1] = of_row.is_correct ? 1.0 : 0.0;
  }
};

template <class T>
struct MeanSquareSlope {
  View y;
  Accumulator<T> times;
  View dy;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t col) const {
    row_of<T>(dy, row)[col] = narrow<T>(widen(row_of<T>(y, row)[col]) * times);
  }
};

// At (row, segment).
template <class T>
struct Squares {
  View x, sums;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t segment) const {
    const std::int64_t first = segment * kSegment;
    row_of<double>(sums, row)[segment] =
        squares_of(row_of<T>(x, row) + first, segment_size(x.cols, first));
  }
};
// Where in its row; or the row's end.
template <class T>
struct FindNotFinite {
  View x, places;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t segment) const {
    const std::int64_t first = segment * kSegment, count = segment_size(x.cols, first);
    const std::int64_t found = first_not_finite(row_of<T>(x, row) + first, count);
    row_of<double>(places, row)[segment] =
        static_cast<double>(found < count ? first + found : x.cols);
  }
};

Result<Tensor> numbers_of(Memory& memory, std::int64_t rows, std::int64_t cols) {
  return Tensor::make(memory, Use::kBuffers, rows, cols, DType::kFloat64);
}

}  // namespace

Status CudaCompute::sum_rows(const View& x, const View& row, Update update) {
  TRY(check_row("sum_rows", row, x));
  return with_type(x.type, [&](auto element) {
    using T = decltype(element);
    using A = Accumulator<T>;
    return row.type == x.type ? cuda_loop(stream_, 1, x.cols, SumColumn<T, T>{x, row, update})
                              : cuda_loop(stream_, 1, x.cols, SumColumn<T, A>{x, row, update});
  });
}

Status CudaCompute::layer_norm(const View& x, const View& gamma, const View& beta, const View& y,
                               const View& stats) {
  TRY(check_norm(x, gamma, beta, y, stats));
  return with_type(x.type, [&](auto element) {
    return cuda_loop(stream_, x.rows, 1, Norm<decltype(element)>{x, gamma, beta, y, stats});
  });
}

Status CudaCompute::layer_norm_backward(const View& x, const View& gamma, const View& stats,
                                        const View& dy, const View& dx, const View& dgamma,
                                        const View& dbeta, Update update) {
  TRY(check_norm_backward(x, gamma, stats, dy, dx, dgamma, dbeta));
  return with_type(x.type, [&](auto element) -> Status {
    using T = decltype(element);
    using A = Accumulator<T>;
    // First, since dx may be dy.
    TRY(dgamma.type == x.type
            ? cuda_loop(stream_, 1, x.cols,
                        NormParameters<T, T>{x, stats, dy, dgamma, dbeta, update})
            : cuda_loop(stream_, 1, x.cols,
                        NormParameters<T, A>{x, stats, dy, dgamma, dbeta, update}));
    return cuda_loop(stream_, x.rows, 1, NormBackward<T>{x, gamma, stats, dy, dx});
  });
}

Result<Score> CudaCompute::cross_entropy(const View& logits, std::span<const std::int32_t> labels,
                                         double normalizer, double factor, const View& dlogits) {
  TRY(check_loss("cross_entropy", logits, normalizer, dlogits));
  TRY(check_labels(logits, labels));
  TRY_ASSIGN(const Tensor there, upload_labels(labels));
  TRY_ASSIGN(const Tensor scores, numbers_of(memory_, logits.rows, 2));
  TRY(with_type(logits.type, [&](auto element) {
    using T = decltype(element);
    const auto times = static_cast<Accumulator<T>>(factor / normalizer);
    return cuda_loop(stream_, logits.rows, 1,
                     CrossEntropy<T>{logits, static_cast<const std::int32_t*>(there.view().data),
                                     times, dlogits, scores.view()});
  }));
  TRY_ASSIGN(const std::vector<double> rows, download_numbers(scores));
  Score score;
  score.rows = logits.rows;
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    score.loss_sum += rows[i];
    score.correct += rows[i + 1] > 0.0;
  }
  return score;
}

Result<Score> CudaCompute::mean_square(const View& outputs, double normalizer, double factor,
                                       const View& doutputs) {
  TRY(check_loss("mean_square", outputs, normalizer, doutputs));
  TRY_ASSIGN(const double sum, sum_of_squares(outputs));
  if (doutputs.data != nullptr) {
    TRY(with_type(outputs.type, [&](auto element) {
      using T = decltype(element);
      const auto times = static_cast<Accumulator<T>>(2.0 * factor / normalizer);
      return cuda_loop(stream_, outputs.rows, outputs.cols,
                       MeanSquareSlope<T>{outputs, times, doutputs});
    }));
  }
  return Score{sum, 0, outputs.rows};
}

Result<double> CudaCompute::sum_of_squares(const View& x) {
  TRY(check_views("sum_of_squares", {x}));
  TRY_ASSIGN(const Tensor sums, numbers_of(memory_, x.rows, segments_of(x.cols)));
  TRY(with_type(x.type, [&](auto element) {
    return cuda_loop(stream_, x.rows, segments_of(x.cols),
                     Squares<decltype(element)>{x, sums.view()});
  }));
  TRY_ASSIGN(const std::vector<double> all, download_numbers(sums));
  double sum = 0.0;
  for (const double one : all) sum += one;
  return sum;
}

Result<std::optional<std::int64_t>> CudaCompute::find_not_finite(const View& x) {
  TRY(check_views("find_not_finite", {x}));
  const std::int64_t segments = segments_of(x.cols);
  TRY_ASSIGN(const Tensor places, numbers_of(memory_, x.rows, segments));
  TRY(with_type(x.type, [&](auto element) {
    return cuda_loop(stream_, x.rows, segments, FindNotFinite<decltype(element)>{x, places.view()});
  }));
  TRY_ASSIGN(const std::vector<double> all, download_numbers(places));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto col = static_cast<std::int64_t>(all[i]);
    if (col < x.cols) return std::optional(static_cast<std::int64_t>(i) / segments * x.cols + col);
  }
  return std::optional<std::int64_t>();
}

}  // namespace tr::par
