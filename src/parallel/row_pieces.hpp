// Gathering and scattering rows piece by piece, so that one piece moves while the next, or the
// last, is computed with.
#pragma once

#include <cstdint>
#include <functional>

#include "treering/parallel/comm.hpp"
#include "treering/parallel/compute.hpp"

namespace tr::par {

// Rows [first, first + count) of the whole matrix.
struct RowRange {
  std::int64_t first = 0, count = 0;
};

// The whole matrix of which every rank has `mine`. use(whole, rows) is called once for every range
// of rows, when it is there.
Result<Tensor> gather_rows(Comm& tp, Compute& compute, const View& mine, int pieces,
                           const std::function<Status(const View& whole, RowRange rows)>& use);

// This rank's `rows` of the sum of all ranks' matrices, whose rows are computed by make(range, to)
// when they are to be sent.
Result<Tensor> scatter_rows(Comm& tp, Compute& compute, std::int64_t rows, std::int64_t cols,
                            DType type, int pieces,
                            const std::function<Status(RowRange rows, const View& to)>& make);

}  // namespace tr::par
