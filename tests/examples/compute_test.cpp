// Memory and operations of a device, the host or (COMPUTE_TEST_CUDA) a GPU, against formulas in
// double precision.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "compute/operations.hpp"
#include "compute_under_test.hpp"
#include "train_mlp/counter_rng.hpp"

namespace {

using compute::Activation;
using compute::Array;
using compute::RowScore;

constexpr int kRows = 37, kColumns = 19;

std::vector<float> random_values(std::size_t size, std::uint64_t stream) {
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = 4 * train::random_symmetric(3, stream, i);
  return values;
}
compute::Matrix<float> whole(const Array<float>& values) {
  return {values.data(), kRows, kColumns};
}

class Operations : public testing::Test {
 protected:
  std::unique_ptr<compute::Operations> ops_ = compute::make_operations(device());
  const std::vector<float> values_ = random_values(kRows * kColumns, 1);
  const Array<float> x_ = on_device(values_);
  const Array<float> y_ = on_device(std::vector<float>(kRows * kColumns, NAN));
};

TEST(Device, KeepsWhatItIsGiven) {
  const std::vector<double> values{1, 2, 3};
  Array<double> a = on_device(values), b = on_device(std::vector<double>{7});
  EXPECT_EQ(on_host(a), values);
  b = std::move(a);
  EXPECT_EQ(on_host(b), values);
  const std::vector<double> two{5, 6};
  ASSERT_TRUE(b.upload(two).ok());
  EXPECT_EQ(on_host(b), (std::vector<double>{5, 6, 3}));
  b.clear();
  EXPECT_EQ(on_host(b), std::vector<double>(3, 0));
  EXPECT_EQ(on_device(std::vector<double>{}).size(), 0u);
  EXPECT_TRUE(device().synchronize().ok());
}

TEST(Device, AnUnknownOneIsRefused) {
  const auto made = compute::make_device("tpu", 0);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "no device 'tpu': host, cuda");
}

TEST(Device, TooMuchMemoryIsAnError) {
  const auto made = Array<float>::make(device(), std::size_t{1} << 58);
  ASSERT_FALSE(made.ok());
  EXPECT_FALSE(made.error().message.empty());
  EXPECT_TRUE(device().synchronize().ok());  // it was told already
}

TEST_F(Operations, AddBias) {
  const std::vector<float> bias = random_values(kColumns, 2);
  const auto on_bias = on_device(bias);
  ops_->add_bias(whole(x_), on_bias.data());
  const auto found = on_host(x_);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i], values_[i] + bias[i % kColumns]);
  }
}

double activated(Activation act, double z) {
  if (act == Activation::kRelu) return std::max(z, 0.0);
  return act == Activation::kGelu ? 0.5 * z * std::erfc(-z / std::sqrt(2.0)) : z;
}

TEST_F(Operations, ActivationsAndTheirSlopes) {
  for (const Activation act : {Activation::kNone, Activation::kRelu, Activation::kGelu}) {
    ops_->activate(act, whole(x_), y_.data());
    const auto d = on_device(std::vector<float>(values_.size(), 3.0f));
    ops_->activate_backward(act, whole(x_), d.data());
    const auto found = on_host(y_), slopes = on_host(d);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      constexpr double kStep = 1e-5;
      const double z = values_[i];
      const double slope = (activated(act, z + kStep) - activated(act, z - kStep)) / (2 * kStep);
      EXPECT_NEAR(found[i], activated(act, z), 2e-6) << z;
      EXPECT_NEAR(slopes[i], 3 * slope, 1e-5) << z;
    }
  }
}

TEST_F(Operations, SumRows) {
  const auto sums = on_device(std::vector<float>(kColumns, NAN));
  ops_->sum_rows(whole(x_), sums.data());
  const auto found = on_host(sums);
  for (int column = 0; column < kColumns; ++column) {
    float sum = 0;
    for (int row = 0; row < kRows; ++row) sum += values_[row * kColumns + column];
    EXPECT_EQ(found[column], sum);
  }
  ops_->sum_rows({x_.data(), 0, kColumns}, sums.data());
  EXPECT_EQ(on_host(sums), std::vector<float>(kColumns, 0.0f));
}

TEST_F(Operations, CrossEntropy) {
  auto values = values_;
  values[3] = 1000;   // in row 0, whose exponent a float does not hold
  values[25] = -500;  // in row 1
  const auto y = on_device(values);
  std::vector<std::uint8_t> labels(kRows);
  for (int row = 0; row < kRows; ++row) labels[row] = static_cast<std::uint8_t>(row % kColumns);
  labels[0] = 3;
  const auto on_labels = on_device(labels);
  const auto scores = on_device(std::vector<RowScore>(kRows));
  ops_->cross_entropy(whole(y), on_labels.data(), 0.5f, y_.data(), scores.data());
  const auto found = on_host(y_);
  const auto rows = on_host(scores);
  for (int row = 0; row < kRows; ++row) {
    const float* in = values.data() + row * kColumns;
    const double largest = *std::max_element(in, in + kColumns);
    double sum = 0;
    for (int c = 0; c < kColumns; ++c) sum += std::exp(in[c] - largest);
    EXPECT_NEAR(rows[row].loss, std::log(sum) + largest - in[labels[row]], 1e-5) << row;
    EXPECT_EQ(rows[row].correct, in[labels[row]] == largest ? 1 : 0) << row;
    for (int c = 0; c < kColumns; ++c) {
      const double expected = std::exp(in[c] - largest) / sum - (c == labels[row] ? 1 : 0);
      EXPECT_NEAR(found[row * kColumns + c], 0.5 * expected, 1e-6) << row << ", " << c;
    }
  }
}

TEST_F(Operations, Squares) {
  const auto scores = on_device(std::vector<RowScore>(kRows));
  ops_->squares(whole(x_), 0.25f, y_.data(), scores.data());
  const auto found = on_host(y_);
  const auto rows = on_host(scores);
  for (int row = 0; row < kRows; ++row) {
    const float* in = values_.data() + row * kColumns;
    double sum = 0;
    for (int c = 0; c < kColumns; ++c) sum += static_cast<double>(in[c]) * in[c];
    EXPECT_NEAR(rows[row].loss, sum, 1e-12);
  }
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], values_[i] * 0.25f);
}

TEST_F(Operations, AdamW) {
  const auto gradients = random_values(values_.size(), 5);
  const auto g = on_device(gradients), m = on_device(random_values(values_.size(), 6));
  auto squares = random_values(values_.size(), 7);
  for (float& v : squares) v *= v;
  const auto v = on_device(squares);
  const auto means = on_host(m);
  ops_->adamw({.beta1 = 0.9f, .beta2 = 0.99f, .keep = 0.75f, .rate = 0.5f, .root = 2, .eps = 0.1f},
              g.span(), m.data(), v.data(), x_.data());
  const auto new_m = on_host(m), new_v = on_host(v), found = on_host(x_);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double gradient = gradients[i];
    const double mean = 0.9 * means[i] + 0.1 * gradient;
    const double square = 0.99 * squares[i] + 0.01 * gradient * gradient;
    EXPECT_NEAR(new_m[i], mean, 1e-6);
    EXPECT_NEAR(new_v[i], square, 3e-6);
    EXPECT_NEAR(found[i], 0.75 * values_[i] - 0.5 * mean / (std::sqrt(square) * 2 + 0.1), 1e-5);
  }
}

}  // namespace
