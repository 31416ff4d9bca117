// What a team must compute, as one rank's plain loops in type A: every product is summed over k in
// order, but in `blocks` partial sums where ranks share k; these are added in rank order. For float
// and double the bits must be the team's where no function of the C library is involved.
#pragma once

#include <cmath>

#include "treering/parallel/rng.hpp"

#include "team.hpp"

namespace partest {

template <class A>
class Oracle {
 public:
  // Of the plan's model and micro-batches. `blocks`: how many ranks share a sum; 1: serial.
  Oracle(const Plan& plan, int blocks)
      : plan_(plan), blocks_(blocks), parameters_(initial(plan.model, 11)) {}

  Outcome run() {
    Outcome out;
    std::vector<Matrix> sums = blank_gradients();
    const Matrix x = inputs_of(plan_);
    std::vector<Matrix> ys, dxs;
    for (int i = 0; i < plan_.micro_batches; ++i) {
      const MicroBatch batch = batch_of(plan_, i);
      std::vector<Matrix> gradients = blank_gradients();
      Matrix dx;
      ys.push_back(pass(batch, round(x.part(i * batch.rows, 0, batch.rows, x.cols)), gradients, dx,
                        out.loss));
      dxs.push_back(dx);
      for (std::size_t p = 0; p < gradients.size(); ++p) add(sums[p], gradients[p]);
    }
    // Ranks add up their micro-batches before they add to each other.
    const std::size_t count = parameters_.size();
    out.gradients.assign(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(count));
    for (std::size_t p = count; p < sums.size(); ++p) add(out.gradients[p % count], sums[p]);
    out.y = stacked(ys);
    if (plan_.first > 0) out.dx = stacked(dxs);
    return out;
  }
  // Of whole parameters that somebody changed: for finite differences.
  double loss() { return run().loss; }
  std::vector<Matrix>& parameters() { return parameters_; }

 private:
  struct Saved {
    Matrix x, n, z;
    std::vector<A> mean, inverse;
  };

  // Of every parameter, for each block of rows that a rank sums by itself in sequence parallelism.
  std::vector<Matrix> blank_gradients() const {
    std::vector<Matrix> blank;
    for (int block = 0; block < blocks_; ++block) {
      for (const Matrix& one : parameters_) blank.emplace_back(one.rows, one.cols);
    }
    return blank;
  }
  // Calls body(first row, rows, where its gradient goes) for the blocks of a parameter.
  template <class Body>
  void for_row_blocks(int number, std::int64_t rows, std::vector<Matrix>& gradients,
                      const Body& body) const {
    const int blocks = plan_.model.parameters()[number].gradient_is_partial ? blocks_ : 1;
    for (int block = 0; block < blocks; ++block) {
      body(rows / blocks * block, rows / blocks, gradients[block * parameters_.size() + number]);
    }
  }

  static Matrix round(Matrix m) {
    for (double& one : m.x) one = static_cast<A>(one);
    return m;
  }
  static void add(Matrix& to, const Matrix& from) {
    for (std::size_t i = 0; i < to.x.size(); ++i) to.x[i] = A(to.x[i]) + A(from.x[i]);
  }
  // sum over k of a(i, k) b(k, j) in `blocks` parts.
  template <class At, class Bt>
  static Matrix product(std::int64_t m, std::int64_t n, std::int64_t k, int blocks, const At& a,
                        const Bt& b) {
    Matrix out(m, n);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        A total = 0;
        for (int block = 0; block < blocks; ++block) {
          A sum = 0;
          for (std::int64_t x = k / blocks * block; x < k / blocks * (block + 1); ++x) {
            const A term = A(a(i, x)) * A(b(x, j));
            sum += term;
          }
          total = block == 0 ? sum : total + sum;
        }
        out(i, j) = total;
      }
    }
    return out;
  }
  static A activated(tr::par::Activation kind, A z) {
    using tr::par::Activation;
    if (kind == Activation::kRelu) return z > 0 ? z : 0;
    if (kind == Activation::kNone) return z;
    return A(0.5) * z *
           (1 + std::tanh(std::sqrt(A(2) / std::acos(A(-1))) * (z + A(0.044715) * z * z * z)));
  }
  static A slope(tr::par::Activation kind, A z) {
    using tr::par::Activation;
    if (kind == Activation::kRelu) return z > 0 ? 1 : 0;
    if (kind == Activation::kNone) return 1;
    const A root = std::sqrt(A(2) / std::acos(A(-1)));
    const A t = std::tanh(root * (z + A(0.044715) * z * z * z));
    return A(0.5) * (1 + t) + A(0.5) * z * (1 - t * t) * root * (1 + A(3 * 0.044715) * z * z);
  }
  // 1 / (1 - p) or 0.
  A mask(const tr::par::LayerSpec& layer, int l, const MicroBatch& batch, std::int64_t i,
         std::int64_t j) const {
    if (layer.dropout == 0.0) return 1;
    const auto place = static_cast<std::uint64_t>((batch.first_row + i) * layer.out + j);
    const std::uint64_t bits =
        tr::par::random_bits(plan_.options.seed, tr::par::dropout_stream(l, batch.step), place);
    const double uniform = static_cast<double>(bits >> 40) / (1 << 24);
    return uniform < layer.dropout ? A(0) : A(1 / (1 - layer.dropout));
  }
  Matrix parameter(int l, ParameterSpec::Kind kind, int* number = nullptr) const {
    for (const ParameterSpec& one : plan_.model.parameters()) {
      if (one.layer != l || one.kind != kind) continue;
      if (number != nullptr) *number = one.number;
      return round(parameters_[one.number]);
    }
    return {};
  }

  Matrix forward(int l, const MicroBatch& batch, const Matrix& x, Saved& saved) const {
    using Kind = ParameterSpec::Kind;
    const tr::par::LayerSpec& layer = plan_.model.layers()[l];
    saved.x = saved.n = x;
    if (layer.has_norm) normalize(l, saved);
    const Matrix w = parameter(l, Kind::kWeight), b = parameter(l, Kind::kBias);
    const int blocks = layer.split == tr::par::Split::kRow ? blocks_ : 1;
    saved.z = product(x.rows, layer.out, layer.in, blocks, saved.n, w);
    Matrix y = saved.z;
    for (std::int64_t i = 0; i < y.rows; ++i) {
      for (std::int64_t j = 0; j < y.cols; ++j) {
        if (layer.has_bias) saved.z(i, j) = A(saved.z(i, j)) + A(b(0, j));
        y(i, j) = activated(layer.activation, A(saved.z(i, j)));
        if (layer.dropout > 0) y(i, j) = A(y(i, j)) * mask(layer, l, batch, i, j);
      }
    }
    return y;
  }
  void normalize(int l, Saved& saved) const {
    const Matrix gamma = parameter(l, ParameterSpec::Kind::kGamma);
    const Matrix beta = parameter(l, ParameterSpec::Kind::kBeta);
    const Matrix& x = saved.x;
    for (std::int64_t i = 0; i < x.rows; ++i) {
      A mean = 0, variance = 0;
      for (std::int64_t j = 0; j < x.cols; ++j) mean += A(x(i, j));
      mean /= A(x.cols);
      for (std::int64_t j = 0; j < x.cols; ++j)
        variance += (A(x(i, j)) - mean) * (A(x(i, j)) - mean);
      saved.mean.push_back(mean);
      saved.inverse.push_back(1 / std::sqrt(variance / A(x.cols) + A(1e-5)));
      for (std::int64_t j = 0; j < x.cols; ++j) {
        saved.n(i, j) = (A(x(i, j)) - mean) * saved.inverse[i] * A(gamma(0, j)) + A(beta(0, j));
      }
    }
  }

  Matrix backward(int l, const MicroBatch& batch, Matrix dz, const Saved& saved,
                  std::vector<Matrix>& gradients) const {
    using Kind = ParameterSpec::Kind;
    const tr::par::LayerSpec& layer = plan_.model.layers()[l];
    for (std::int64_t i = 0; i < dz.rows; ++i) {
      for (std::int64_t j = 0; j < dz.cols; ++j) {
        if (layer.dropout > 0) dz(i, j) = A(dz(i, j)) * mask(layer, l, batch, i, j);
        if (layer.activation != tr::par::Activation::kNone) {
          dz(i, j) = A(dz(i, j)) * slope(layer.activation, A(saved.z(i, j)));
        }
      }
    }
    int number = -1;
    const Matrix w = parameter(l, Kind::kWeight, &number);
    for_row_blocks(
        number, dz.rows, gradients, [&](std::int64_t first, std::int64_t rows, Matrix& to) {
          to = product(
              layer.in, layer.out, rows, 1, [&](auto i, auto k) { return saved.n(first + k, i); },
              [&](auto k, auto j) { return dz(first + k, j); });
        });
    if (layer.has_bias) {
      parameter(l, Kind::kBias, &number);
      for_row_blocks(number, dz.rows, gradients,
                     [&](std::int64_t first, std::int64_t rows, Matrix& to) {
                       to = product(
                           1, layer.out, rows, 1, [](auto, auto) { return 1.0; },
                           [&](auto k, auto j) { return dz(first + k, j); });
                     });
    }
    const int blocks = layer.split == tr::par::Split::kColumn ? blocks_ : 1;
    Matrix dx =
        product(dz.rows, layer.in, layer.out, blocks, dz, [&](auto k, auto j) { return w(j, k); });
    if (layer.has_norm) norm_backward(l, dx, saved, gradients);
    return dx;
  }
  void norm_backward(int l, Matrix& d, const Saved& saved, std::vector<Matrix>& gradients) const {
    int gamma_number = -1, beta_number = -1;
    const Matrix gamma = parameter(l, ParameterSpec::Kind::kGamma, &gamma_number);
    parameter(l, ParameterSpec::Kind::kBeta, &beta_number);
    const auto hat = [&](std::int64_t i, std::int64_t j) {
      return (A(saved.x(i, j)) - saved.mean[i]) * saved.inverse[i];
    };
    const auto add_rows = [&](int number, const auto& factor) {
      for_row_blocks(
          number, d.rows, gradients, [&](std::int64_t first, std::int64_t rows, Matrix& to) {
            to = product(
                1, d.cols, rows, 1, [](auto, auto) { return 1.0; },
                [&](auto k, auto j) { return A(d(first + k, j)) * factor(first + k, j); });
          });
    };
    add_rows(gamma_number, hat);
    add_rows(beta_number, [](auto, auto) { return A(1); });
    for (std::int64_t i = 0; i < d.rows; ++i) {
      A sum = 0, along = 0;
      for (std::int64_t j = 0; j < d.cols; ++j) {
        sum += A(d(i, j)) * A(gamma(0, j));
        along += A(d(i, j)) * A(gamma(0, j)) * hat(i, j);
      }
      for (std::int64_t j = 0; j < d.cols; ++j) {
        d(i, j) = saved.inverse[i] *
                  (A(d(i, j)) * A(gamma(0, j)) - sum / A(d.cols) - hat(i, j) * along / A(d.cols));
      }
    }
  }

  // One micro-batch. Loss: the mean of all rows' squared outputs.
  Matrix pass(const MicroBatch& batch, Matrix x, std::vector<Matrix>& gradients, Matrix& dx,
              double& loss) const {
    const auto layers = static_cast<int>(plan_.model.layers().size());
    std::vector<Saved> saved(layers);
    Matrix y = std::move(x);
    for (int l = plan_.first; l < layers; ++l) y = forward(l, batch, y, saved[l]);
    const double outputs = static_cast<double>(plan_.rows * y.cols);
    Matrix d = y;
    for (std::size_t i = 0; i < y.x.size(); ++i) {
      loss += y.x[i] * y.x[i] / outputs;
      d.x[i] = A(y.x[i]) * A(2.0 / outputs);
    }
    for (int l = layers - 1; l >= plan_.first; --l) d = backward(l, batch, d, saved[l], gradients);
    dx = d;
    return y;
  }

  Plan plan_;
  int blocks_;
  std::vector<Matrix> parameters_;
};

}  // namespace partest
