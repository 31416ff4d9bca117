// Training data as rows of float features with one label each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "treering/result.hpp"

namespace train {

struct Table {
  int features = 0;
  int classes = 0;              // 0: no labels
  std::vector<float> x;         // rows() x features, row-major
  std::vector<std::uint8_t> y;  // rows(), or empty
  int rows() const { return features == 0 ? 0 : static_cast<int>(x.size() / features); }
};

struct Dataset {
  Table train, test;
};

// 1,797 handwritten digits, 8 x 8, from `file` (one "p0,...,p63,label" a line, gzipped). Scaled to
// [0, 1]; a fixed pseudo-random 1,437 rows are for training, 360 for the test. (Taken unshuffled,
// the test would have other writers than the training: 0.92 instead of 0.97.)
tr::Result<Dataset> load_digits(const std::string& file);

// Fashion-MNIST: 60,000 + 10,000 pictures, 28 x 28, the four idx .gz files in `folder`; scaled to
// [0, 1].
tr::Result<Dataset> load_fashion(const std::string& folder);

// `rows` rows of bell-shaped noise (mean 0, variance 1), no labels, no test.
Dataset make_noise(int rows, int features, std::uint64_t seed);

// The rows 0..rows-1 in an order that depends on nothing but the arguments: the same on every rank.
std::vector<std::uint32_t> permutation(int rows, std::uint64_t seed, std::uint64_t stream);

// Rank r of n takes rows [first, last) of a batch of `rows`: contiguous, sizes differ by at most
// one, none left out. May be empty.
struct Range {
  int first = 0, last = 0;
  int count() const { return last - first; }
};
Range share(int rows, int rank, int size);

// to = the rows of `from` that `order` names, one after another.
void gather_rows(const Table& from, std::span<const std::uint32_t> order, Table& to);

}  // namespace train
