// Where the elements of a rank's part of a parameter lie in the global matrix.
#pragma once

#include <cstdint>

#include "treering/parallel/model.hpp"

namespace tr::par {

// Part `rank` of `ranks` of a rows x cols matrix in this layout (not kPartial).
struct Slice {
  std::int64_t first_row = 0, first_col = 0, rows = 0, cols = 0;
  std::int64_t global_cols = 0;

  static Slice of(const ParameterSpec& p, Layout layout, int rank, int ranks) {
    Slice s{0, 0, p.rows, p.cols, p.cols};
    if (layout == Layout::kColumns) s.cols /= ranks, s.first_col = rank * s.cols;
    if (layout == Layout::kRows) s.rows /= ranks, s.first_row = rank * s.rows;
    return s;
  }
  std::int64_t elements() const { return rows * cols; }
  // Of the local element `flat`, in the flat global matrix.
  std::int64_t global(std::int64_t flat) const {
    return (first_row + flat / cols) * global_cols + first_col + flat % cols;
  }
};

}  // namespace tr::par
