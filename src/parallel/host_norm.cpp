// Layer normalization on the host.
#include <vector>

#include "parallel/checks.hpp"
#include "parallel/host_compute.hpp"
#include "parallel/rows.hpp"

namespace tr::par {

Status HostCompute::layer_norm(const View& x, const View& gamma, const View& beta, const View& y,
                               const View& stats) {
  if (Status checked = check_norm(x, gamma, beta, y, stats); !checked) return checked;
  with_type(x.type, [&](auto element) {
    using T = decltype(element);
    using A = Accumulator<T>;
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const T* from = row_of<T>(x, row);
      const RowStats<A> of_row = stats_of(from, x.cols);
      row_of<A>(stats, row)[0] = of_row.mean;
      row_of<A>(stats, row)[1] = of_row.inverse_deviation;
      norm_row(from, row_of<T>(gamma, 0), row_of<T>(beta, 0), of_row, row_of<T>(y, row), x.cols);
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
      const T *at = row_of<T>(x, row), *slope = row_of<T>(dy, row);
      for (std::int64_t j = 0; j < x.cols; ++j) {
        gamma_sums[j] += widen(slope[j]) * of_row.normalized(at[j]);
        beta_sums[j] += widen(slope[j]);
      }
      norm_backward_row(at, row_of<T>(gamma, 0), of_row, slope, row_of<T>(dx, row), x.cols);
    }
    store_sums(gamma_sums.data(), x.cols, dgamma, update);
    store_sums(beta_sums.data(), x.cols, dbeta, update);
  });
  return {};
}

}  // namespace tr::par
