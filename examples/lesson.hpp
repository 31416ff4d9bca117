// Small matrices and a small network, as plain as can be, for lessons 3 to 7: what matters there is
// where the bytes go.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "treering/parallel/rng.hpp"

namespace lesson {

struct Matrix {  // row-major
  int rows = 0, cols = 0;
  std::vector<float> x;
  Matrix() = default;
  Matrix(int r, int c) : rows(r), cols(c), x(static_cast<std::size_t>(r) * c) {}
  float& at(int i, int j) { return x[static_cast<std::size_t>(i) * cols + j]; }
  float at(int i, int j) const { return x[static_cast<std::size_t>(i) * cols + j]; }
};

// A function of (stream, i, j): the same matrix on every rank.
inline Matrix random(int rows, int cols, int stream, double scale = 1.0) {
  Matrix m(rows, cols);
  for (std::size_t i = 0; i < m.x.size(); ++i) {
    m.x[i] = static_cast<float>(
        scale * tr::par::random_symmetric(1, static_cast<std::uint64_t>(stream), i));
  }
  return m;
}

inline Matrix transposed(const Matrix& a) {
  Matrix t(a.cols, a.rows);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.cols; ++j) t.at(j, i) = a.at(i, j);
  }
  return t;
}
inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (int i = 0; i < a.rows; ++i) {
    for (int k = 0; k < a.cols; ++k) {
      for (int j = 0; j < b.cols; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}
inline Matrix row_range(const Matrix& a, int first, int count) {
  Matrix part(count, a.cols);
  std::copy_n(a.x.begin() + static_cast<std::ptrdiff_t>(first) * a.cols, part.x.size(),
              part.x.begin());
  return part;
}
inline Matrix column_range(const Matrix& a, int first, int count) {
  Matrix part(a.rows, count);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < count; ++j) part.at(i, j) = a.at(i, first + j);
  }
  return part;
}
inline Matrix relu(Matrix z) {
  for (float& v : z.x) v = std::max(v, 0.0f);
  return z;
}
// d * relu'(z), where a = relu(z).
inline Matrix relu_backward(Matrix d, const Matrix& a) {
  for (std::size_t i = 0; i < d.x.size(); ++i) d.x[i] = a.x[i] > 0 ? d.x[i] : 0.0f;
  return d;
}
// The gradient of sum(y^2) / normalizer.
inline Matrix loss_gradient(Matrix y, double normalizer) {
  for (float& v : y.x) v = static_cast<float>(2 * v / normalizer);
  return y;
}
inline double loss_sum(const Matrix& y) {
  double sum = 0;
  for (const float v : y.x) sum += static_cast<double>(v) * v;
  return sum;
}

// |a - b| / |b|.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

// Rows [first, first + count) of `total` that rank r of n gets.
struct Share {
  int first, count;
};
inline Share share(int total, int r, int n) {
  return {r * (total / n) + std::min(r, total % n), total / n + (r < total % n ? 1 : 0)};
}

// y = relu(... relu(x W_0) ...) W_last
using Net = std::vector<Matrix>;
inline Net make_net(int layers, int width) {
  Net net;
  for (int l = 0; l < layers; ++l) net.push_back(random(width, width, l, std::sqrt(6.0 / width)));
  return net;
}
// The inputs of all layers, then the outputs.
inline std::vector<Matrix> forward(const Net& net, const Matrix& x) {
  std::vector<Matrix> a = {x};
  for (std::size_t l = 0; l < net.size(); ++l) {
    Matrix z = product(a.back(), net[l]);
    a.push_back(l + 1 < net.size() ? relu(std::move(z)) : std::move(z));
  }
  return a;
}
// gradient[l] = dW_l; done(l) as soon as it is there, the last layer first.
inline void backward(const Net& net, const std::vector<Matrix>& a, double normalizer, Net& gradient,
                     const std::function<void(int)>& done) {
  Matrix d = loss_gradient(a.back(), normalizer);
  for (int l = static_cast<int>(net.size()) - 1; l >= 0; --l) {
    if (l + 1 < static_cast<int>(net.size())) d = relu_backward(std::move(d), a[l + 1]);
    gradient[l] = product(transposed(a[l]), d);
    if (l > 0) d = product(d, transposed(net[l]));
    done(l);
  }
}

}  // namespace lesson
