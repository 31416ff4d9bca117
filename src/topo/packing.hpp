// A small linear program: how much of each column fits. Maximise sum(value x amount) so that for
// each row sum(use x amount) <= capacity, amounts >= 0. Columns can be added to a solved one.
//
// The simplex method on a dense tableau; as nothing of anything fits always, no start is searched.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace treering::topo {

class Packing {
 public:
  explicit Packing(std::vector<double> capacity);

  // uses: of each row.
  void add_column(double value, const std::vector<double>& uses);
  void solve();

  std::vector<double> amounts() const;  // of the columns, in the order in which they were added
  // What one more unit of each row would be worth: no column is worth more than its uses cost.
  std::vector<double> prices() const;
  std::int64_t steps() const { return steps_; }

 private:
  std::size_t entering(bool first_one) const;  // column_count: none
  std::size_t leaving(std::size_t column) const;
  void pivot(std::size_t row, std::size_t column);

  std::size_t rows_;
  // Row by row: slack columns first (so they are the inverse of the basis), then the others.
  std::vector<std::vector<double>> tableau_;
  std::vector<double> right_;
  std::vector<double> gain_;        // of each column, if one more unit of it came in
  std::vector<std::size_t> basis_;  // of each row
  std::int64_t steps_ = 0;
};

}  // namespace treering::topo
