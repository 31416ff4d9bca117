// Training data: pictures with labels, noise, bytes of a text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "treering/parallel/trainer.hpp"

namespace train {

// Rows of float features with one label each, or none.
class Table final : public tr::par::Data {
 public:
  Table(std::int64_t features, int classes) : features_(features), classes_(classes) {}
  std::int64_t rows() const override { return static_cast<std::int64_t>(x.size()) / features_; }
  std::int64_t features() const override { return features_; }
  int classes() const { return classes_; }  // 0: no labels
  void read(std::span<const std::int64_t> rows, std::span<float> features,
            std::span<std::int32_t> labels) const override;

  std::vector<float> x;         // rows() x features(), row-major
  std::vector<std::int32_t> y;  // rows(), or empty

 private:
  std::int64_t features_;
  int classes_;
};

// Row i: the kContext bytes from i on, each as a row of 256 with a single 1; the label is the byte
// that follows.
class Bytes final : public tr::par::Data {
 public:
  static constexpr int kContext = 16, kValues = 256;
  explicit Bytes(std::vector<unsigned char> text) : text_(std::move(text)) {}
  std::int64_t rows() const override {
    return std::max<std::int64_t>(0, static_cast<std::int64_t>(text_.size()) - kContext);
  }
  std::int64_t features() const override { return kContext * kValues; }
  void read(std::span<const std::int64_t> rows, std::span<float> features,
            std::span<std::int32_t> labels) const override;

 private:
  std::vector<unsigned char> text_;
};

struct Dataset {
  std::unique_ptr<tr::par::Data> train, test;  // test: may be nullptr
};

// 1,797 handwritten digits, 8 x 8, from `file` (one "p0,...,p63,label" a line, gzipped). Scaled to
// [0, 1]; a fixed pseudo-random 1,437 rows are for training, 360 for the test. (Taken unshuffled,
// the test would have other writers than the training: 0.92 instead of 0.97.)
tr::Result<Dataset> load_digits(const std::string& file);

// Fashion-MNIST: 60,000 + 10,000 pictures, 28 x 28, the four idx .gz files in `folder`; scaled to
// [0, 1].
tr::Result<Dataset> load_fashion(const std::string& folder);

// The first `train_bytes` of a file, and the `test_bytes` after them.
tr::Result<Dataset> load_bytes(const std::string& file, std::size_t train_bytes,
                               std::size_t test_bytes);

// `rows` rows of bell-shaped noise (mean 0, variance 1), no labels, no test.
Dataset make_noise(int rows, int features, std::uint64_t seed);

// Rows that a dry run counts and nobody reads.
Dataset outline(int rows, int features);

}  // namespace train
