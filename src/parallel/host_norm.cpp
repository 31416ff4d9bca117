// Layer normalization on the host.
#include <cmath>
#include <vector>

#include "parallel/checks.hpp"
#include "parallel/host_compute.hpp"
#include "parallel/number.hpp"

namespace tr::par {
namespace {

constexpr double kEpsilon = 1e-5;

template <class A>
struct RowStats {
  A mean, inverse_deviation;
};

template <class T, class A = Accumulator<T>>
RowStats<A> stats_of(const T* x, std::int64_t cols) {
  const A count = static_cast<A>(cols);
  A sum{}, squares{};
  for (std::int64_t j = 0; j < cols; ++j) sum += widen(x[j]);
  const A mean = sum / count;
  for (std::int64_t j = 0; j < cols; ++j) squares += (widen(x[j]) - mean) * (widen(x[j]) - mean);
  return {mean, A(1) / std::sqrt(squares / count + A(kEpsilon))};
}

// xh = (x - mean) / deviation, g = dy gamma:
// dx = (g - mean(g) - xh mean(g xh)) / deviation      dgamma = sum dy xh      dbeta = sum dy
template <class T, class A = Accumulator<T>>
void backward_row(const T* x, const T* gamma, const RowStats<A>& stats, const T* dy, T* dx,
                  std::int64_t cols, A* dgamma, A* dbeta) {
  const auto normalized = [&](std::int64_t j) {
    return (widen(x[j]) - stats.mean) * stats.inverse_deviation;
  };
  A sum{}, along{};
  for (std::int64_t j = 0; j < cols; ++j) {
    const A g = widen(dy[j]) * widen(gamma[j]);
    sum += g;
    along += g * normalized(j);
    dgamma[j] += widen(dy[j]) * normalized(j);
    dbeta[j] += widen(dy[j]);
  }
  sum /= static_cast<A>(cols);
  along /= static_cast<A>(cols);
  for (std::int64_t j = 0; j < cols; ++j) {
    const A g = widen(dy[j]) * widen(gamma[j]);
    dx[j] = narrow<T>((g - sum - normalized(j) * along) * stats.inverse_deviation);
  }
}

}  // namespace

Status HostCompute::layer_norm(const View& x, const View& gamma, const View& beta, const View& y,
                               const View& stats) {
  if (Status checked = check_norm(x, gamma, beta, y, stats); !checked) return checked;
  with_type(x.type, [&](auto element) {
    using T = decltype(element);
    using A = Accumulator<T>;
    const T *factor = row_of<T>(gamma, 0), *summand = row_of<T>(beta, 0);
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const T* from = row_of<T>(x, row);
      T* to = row_of<T>(y, row);
      const RowStats<A> of_row = stats_of(from, x.cols);
      row_of<A>(stats, row)[0] = of_row.mean;
      row_of<A>(stats, row)[1] = of_row.inverse_deviation;
      for (std::int64_t j = 0; j < x.cols; ++j) {
        const A normalized = (widen(from[j]) - of_row.mean) * of_row.inverse_deviation;
        to[j] = narrow<T>(normalized * widen(factor[j]) + widen(summand[j]));
      }
    }
  });
  return {};
}

Status HostCompute::layer_norm_backward(const View& x, const View& gamma, const View& stats,
                                        const View& dy, const View& dx, const View& dgamma,
                                        const View& dbeta, Update update) {
  if (Status checked = check_norm_backward(x, gamma, stats, dy, dx, dgamma, dbeta); !checked) {
    return checked;
  }
  with_type(x.type, [&](auto element) {
    using T = decltype(element);
    using A = Accumulator<T>;
    std::vector<A> gamma_sums(static_cast<std::size_t>(x.cols)), beta_sums(gamma_sums);
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const RowStats<A> of_row{row_of<A>(stats, row)[0], row_of<A>(stats, row)[1]};
      backward_row(row_of<T>(x, row), row_of<T>(gamma, 0), of_row, row_of<T>(dy, row),
                   row_of<T>(dx, row), x.cols, gamma_sums.data(), beta_sums.data());
    }
    store_sums(gamma_sums.data(), x.cols, dgamma, update);
    store_sums(beta_sums.data(), x.cols, dbeta, update);
  });
  return {};
}

}  // namespace tr::par
