#include "topo/packing.hpp"

#include <algorithm>
#include <limits>

namespace treering::topo {
namespace {

constexpr double kTiny = 1e-9;
// Pivots that gain nothing could go round in circles. After so many of them the lowest column that
// gains is taken (Bland's rule), which never does.
constexpr int kPatience = 30;
constexpr int kMaxPivots = 20'000;

}  // namespace

Packing::Packing(std::vector<double> capacity)
    : rows_(capacity.size()), right_(std::move(capacity)), gain_(rows_, 0), basis_(rows_) {
  tableau_.assign(rows_, std::vector<double>(rows_, 0));
  for (std::size_t row = 0; row < rows_; ++row) {
    tableau_[row][row] = 1;
    basis_[row] = row;
  }
}

void Packing::add_column(double value, const std::vector<double>& uses) {
  double gain = value;
  for (std::size_t i = 0; i < rows_; ++i) gain += uses[i] * gain_[i];
  gain_.push_back(gain);
  for (std::size_t row = 0; row < rows_; ++row) {
    double entry = 0;
    for (std::size_t i = 0; i < rows_; ++i) {
      if (uses[i] != 0) entry += tableau_[row][i] * uses[i];
    }
    tableau_[row].push_back(entry);
  }
  steps_ += static_cast<std::int64_t>(rows_ * rows_);
}

std::size_t Packing::entering(bool first_one) const {
  std::size_t best = gain_.size();
  for (std::size_t column = 0; column < gain_.size(); ++column) {
    if (gain_[column] <= kTiny) continue;
    if (best == gain_.size() || gain_[column] > gain_[best] + kTiny) best = column;
    if (first_one) break;
  }
  return best;
}

std::size_t Packing::leaving(std::size_t column) const {
  std::size_t best = rows_;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t row = 0; row < rows_; ++row) {
    const double entry = tableau_[row][column];
    if (entry <= kTiny) continue;
    const double ratio = right_[row] / entry;
    const bool tie = best < rows_ && ratio <= least + kTiny && basis_[row] < basis_[best];
    if (ratio < least - kTiny || tie) {
      best = row;
      least = std::min(ratio, least);
    }
  }
  return best;
}

void Packing::pivot(std::size_t row, std::size_t column) {
  std::vector<double>& chosen = tableau_[row];
  const double scale = 1 / chosen[column];
  for (double& entry : chosen) entry *= scale;
  right_[row] *= scale;
  const auto subtract = [&](std::vector<double>& from, double factor) {
    for (std::size_t i = 0; i < chosen.size(); ++i) from[i] -= factor * chosen[i];
    from[column] = 0;
  };
  for (std::size_t other = 0; other < rows_; ++other) {
    const double factor = tableau_[other][column];
    if (other == row || factor == 0) continue;
    subtract(tableau_[other], factor);
    right_[other] = std::max(0.0, right_[other] - factor * right_[row]);
    steps_ += static_cast<std::int64_t>(chosen.size());
  }
  chosen[column] = 1;
  subtract(gain_, gain_[column]);
  basis_[row] = column;
}

void Packing::solve() {
  int idle = 0;
  for (int pivots = 0; pivots < kMaxPivots; ++pivots) {
    const std::size_t column = entering(idle > kPatience);
    if (column == gain_.size()) return;
    const std::size_t row = leaving(column);
    if (row == rows_) return;  // a column that uses nothing
    idle = right_[row] <= kTiny ? idle + 1 : 0;
    pivot(row, column);
  }
}

std::vector<double> Packing::amounts() const {
  std::vector<double> out(gain_.size() - rows_, 0);
  for (std::size_t row = 0; row < rows_; ++row) {
    if (basis_[row] >= rows_) out[basis_[row] - rows_] = right_[row];
  }
  return out;
}

std::vector<double> Packing::prices() const {
  std::vector<double> out(rows_);
  for (std::size_t i = 0; i < rows_; ++i) out[i] = std::max(0.0, -gain_[i]);
  return out;
}

}  // namespace treering::topo
