// The operations, each written once: as a struct whose operator() does what is to be done at
// (row, column). No two of its calls write the same number, so a loop may make them one after
// another and a kernel all at once, and the numbers are the same (but for exp, log and erf, which a
// GPU rounds in its own way).
//
// Loop is called as loop(rows, columns, f), and calls f(row, column) for all of them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "compute/operations.hpp"

#ifdef __CUDACC__
#define COMPUTE_HD __host__ __device__
#else
#define COMPUTE_HD
#endif

namespace compute {

COMPUTE_HD inline float activated(Activation act, float z) {
  switch (act) {
    case Activation::kNone:
      return z;
    case Activation::kRelu:
      return z > 0.0f ? z : 0.0f;
    case Activation::kGelu:
      return 0.5f * z * (1.0f + std::erf(z * 0.70710678f));
  }
  return z;
}

COMPUTE_HD inline float slope(Activation act, float z) {
  switch (act) {
    case Activation::kNone:
      return 1.0f;
    case Activation::kRelu:
      return z > 0.0f ? 1.0f : 0.0f;
    case Activation::kGelu:  // cdf(z) + z pdf(z) of the normal distribution
      return 0.5f * (1.0f + std::erf(z * 0.70710678f)) + z * 0.39894228f * std::exp(-0.5f * z * z);
  }
  return 1.0f;
}

struct AddBias {
  Matrix<float> z;
  const float* bias;
  COMPUTE_HD void operator()(std::size_t row, std::size_t column) const {
    z.data[row * z.columns + column] += bias[column];
  }
};

struct Activate {
  Activation act;
  Matrix<const float> z;
  float* a;
  COMPUTE_HD void operator()(std::size_t row, std::size_t column) const {
    const std::size_t i = row * z.columns + column;
    a[i] = activated(act, z.data[i]);
  }
};

struct ActivateBackward {
  Activation act;
  Matrix<const float> z;
  float* d;
  COMPUTE_HD void operator()(std::size_t row, std::size_t column) const {
    const std::size_t i = row * z.columns + column;
    d[i] *= slope(act, z.data[i]);
  }
};

// At (0, column).
struct SumRows {
  Matrix<const float> x;
  float* sums;
  COMPUTE_HD void operator()(std::size_t, std::size_t column) const {
    float sum = 0.0f;
    for (int row = 0; row < x.rows; ++row) {
      sum += x.data[static_cast<std::size_t>(row) * x.columns + column];
    }
    sums[column] = sum;
  }
};

// At (row, 0). Exponents are taken of what is below the largest output: none overflows.
struct CrossEntropy {
  Matrix<const float> y;
  const std::uint8_t* labels;
  float scale;
  float* dy;
  RowScore* scores;
  COMPUTE_HD void operator()(std::size_t row, std::size_t) const {
    const float* in = y.data + row * y.columns;
    float* out = dy + row * y.columns;
    const int label = labels[row];
    int best = 0;
    for (int c = 1; c < y.columns; ++c) best = in[c] > in[best] ? c : best;
    float sum = 0.0f;
    for (int c = 0; c < y.columns; ++c) sum += out[c] = std::exp(in[c] - in[best]);
    for (int c = 0; c < y.columns; ++c) {
      out[c] = (out[c] / sum - (c == label ? 1.0f : 0.0f)) * scale;
    }
    scores[row].loss = std::log(sum) + in[best] - in[label];
    scores[row].correct = best == label ? 1 : 0;
  }
};

// At (row, 0).
struct Squares {
  Matrix<const float> y;
  float scale;
  float* dy;
  RowScore* scores;
  COMPUTE_HD void operator()(std::size_t row, std::size_t) const {
    double loss = 0.0;
    for (std::size_t i = row * y.columns; i < (row + 1) * y.columns; ++i) {
      dy[i] = y.data[i] * scale;
      loss += static_cast<double>(y.data[i]) * y.data[i];
    }
    scores[row].loss = loss;
    scores[row].correct = 0;
  }
};

// At (0, i).
struct AdamWElement {
  AdamWFactors by;
  const float* gradients;
  float *m, *v, *parameters;
  COMPUTE_HD void operator()(std::size_t, std::size_t i) const {
    const float g = gradients[i];
    m[i] = by.beta1 * m[i] + (1.0f - by.beta1) * g;
    v[i] = by.beta2 * v[i] + (1.0f - by.beta2) * g * g;
    parameters[i] = by.keep * parameters[i] - by.rate * m[i] / (std::sqrt(v[i]) * by.root + by.eps);
  }
};

template <class Loop>
class Elementwise final : public Operations {
 public:
  explicit Elementwise(Loop loop) : loop_(loop) {}

  void add_bias(Matrix<float> z, const float* bias) override {
    loop_(z.rows, z.columns, AddBias{z, bias});
  }
  void activate(Activation act, Matrix<const float> z, float* a) override {
    loop_(z.rows, z.columns, Activate{act, z, a});
  }
  void activate_backward(Activation act, Matrix<const float> z, float* d) override {
    loop_(z.rows, z.columns, ActivateBackward{act, z, d});
  }
  void sum_rows(Matrix<const float> x, float* sums) override {
    loop_(1, x.columns, SumRows{x, sums});
  }
  void cross_entropy(Matrix<const float> y, const std::uint8_t* labels, float scale, float* dy,
                     RowScore* scores) override {
    loop_(y.rows, 1, CrossEntropy{y, labels, scale, dy, scores});
  }
  void squares(Matrix<const float> y, float scale, float* dy, RowScore* scores) override {
    loop_(y.rows, 1, Squares{y, scale, dy, scores});
  }
  void adamw(const AdamWFactors& factors, std::span<const float> gradients, float* m, float* v,
             float* parameters) override {
    loop_(1, gradients.size(), AdamWElement{factors, gradients.data(), m, v, parameters});
  }

 private:
  Loop loop_;
};

}  // namespace compute
