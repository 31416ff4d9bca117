// Arithmetic on elements, the host's or a GPU's (compute_under_test.hpp), against loops in long
// double, finite differences and published formulas.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>

#include "compute_under_test.hpp"
#include "matrices.hpp"

namespace {

using namespace partest;
using tr::par::Activation;
using tr::par::DropoutKey;
using tr::par::Update;

class OnTypes : public testing::TestWithParam<DType> {
 protected:
  DType type() const { return GetParam(); }
  DType wide() const { return tr::par::accumulator_of(type()); }
  // Of a few operations on numbers of about 1, then stored.
  double tolerance() const { return 16 * rounding_of(wide()) + 2 * rounding_of(type()); }
  Matrix random(std::int64_t rows, std::int64_t cols, std::uint64_t stream) {
    return rounded(compute(), random_matrix(rows, cols, stream), type());
  }
  Compute& compute() { return *compute_; }

 private:
  std::unique_ptr<Compute> compute_ = must(make_compute("ref"));
};
INSTANTIATE_TEST_SUITE_P(All, OnTypes, testing::ValuesIn(kTypes),
                         [](const auto& one) { return name_of(one.param); });

long double activated(Activation kind, long double z) {
  if (kind == Activation::kRelu) return z > 0 ? z : 0;
  if (kind == Activation::kNone) return z;
  return 0.5L * z * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0L)) * (z + 0.044715L * z * z * z)));
}

TEST_P(OnTypes, ActivationsAndTheirSlopes) {
  const Matrix z = random(3, 7, 1), da = random(3, 7, 2);
  for (const Activation kind : {Activation::kNone, Activation::kRelu, Activation::kGelu}) {
    Matrix value(3, 7), gradient(3, 7);
    for (std::size_t i = 0; i < z.x.size(); ++i) {
      const long double h = 1e-6L, at = 3 * z.x[i];
      value.x[i] = static_cast<double>(activated(kind, at));
      gradient.x[i] = static_cast<double>(
          da.x[i] * (activated(kind, at + h) - activated(kind, at - h)) / (2 * h));
    }
    Matrix wide_z = z;
    for (double& one : wide_z.x) one *= 3;
    const Tensor at = tensor_of(compute(), wide_z, type());
    const Tensor y = empty_tensor(compute(), 3, 7, type());
    const Tensor dz = tensor_of(compute(), da, type());
    must(compute().activate(kind, at.view(), y.view()));
    must(compute().activate_backward(kind, at.view(), dz.view(), dz.view()));
    // 3 z was rounded, and the slope is at most 1.2.
    const double allowed = 3 * tolerance() + 1e-9;
    expect_near(read(compute(), y.view()), value, allowed);
    expect_near(read(compute(), dz.view()), gradient, 2 * allowed);
  }
}

TEST_P(OnTypes, GeluIsAccurateFarOut) {
  Matrix z(1, 4001);
  for (int i = 0; i <= 4000; ++i) z.x[i] = (i - 2000) * 0.05;
  z = rounded(compute(), z, type());
  const Tensor x = tensor_of(compute(), z, type()), y = empty_tensor(compute(), 1, 4001, type());
  must(compute().activate(Activation::kGelu, x.view(), y.view()));
  const Matrix values = read(compute(), y.view());
  for (int i = 0; i <= 4000; ++i) {
    const auto expected = static_cast<double>(activated(Activation::kGelu, z.x[i]));
    const double allowed = 4 * rounding_of(wide()) * std::max(1.0, std::abs(z.x[i])) +
                           std::abs(expected) * rounding_of(type()) * 1.01;
    ASSERT_NEAR(values.x[i], expected, allowed) << z.x[i];
  }
  const double infinity = std::numeric_limits<double>::infinity();
  Matrix special(1, 3);
  special.x = {infinity, std::nan(""), 0.0};
  const Matrix out = [&] {
    const Tensor at = tensor_of(compute(), special, type());
    must(compute().activate(Activation::kGelu, at.view(), at.view()));
    return read(compute(), at.view());
  }();
  EXPECT_EQ(out.x[0], infinity);
  EXPECT_TRUE(std::isnan(out.x[1]));
  EXPECT_EQ(out.x[2], 0.0);
}

TEST_P(OnTypes, NotANumberIsNotHiddenByRelu) {
  Matrix z(1, 2);
  z.x = {std::numeric_limits<double>::quiet_NaN(), -1.0};
  const Tensor x = tensor_of(compute(), z, type());
  must(compute().activate(Activation::kRelu, x.view(), x.view()));
  EXPECT_TRUE(std::isnan(read(compute(), x.view()).x[0]));
  EXPECT_EQ(read(compute(), x.view()).x[1], 0.0);
}

TEST_P(OnTypes, RowsAreAddedAndSummedInOrder) {
  const Matrix x = random(37, 11, 3), row = random(1, 11, 4);
  const Tensor a = tensor_of(compute(), x, type()), b = tensor_of(compute(), row, type());
  const Tensor sums = tensor_of(compute(), row, wide());
  must(compute().sum_rows(a.view(), sums.view(), Update::kAdd));
  must(compute().add_row(b.view(), a.view()));
  Matrix expected(1, 11), added(37, 11);
  for (int j = 0; j < 11; ++j) {
    double sum64 = 0;
    float sum32 = 0;
    for (int i = 0; i < 37; ++i) {
      sum64 += x(i, j);
      sum32 += static_cast<float>(x(i, j));
      added(i, j) = x(i, j) + row(0, j);
    }
    expected(0, j) =
        type() == DType::kFloat64 ? row(0, j) + sum64 : static_cast<float>(row(0, j)) + sum32;
  }
  expect_equal(read(compute(), sums.view()), expected);
  expect_equal(read(compute(), a.view()), rounded(compute(), added, type()));
}

TEST_P(OnTypes, CopiesAddsAndScalesPartsOfMatrices) {
  const Matrix x = random(5, 9, 5), y = random(5, 9, 6);
  const Tensor a = tensor_of(compute(), x, type()), b = tensor_of(compute(), y, type());
  const View middle = a.view().columns(2, 3).row_range(1, 2);
  must(compute().add(b.view().columns(5, 3).row_range(3, 2), middle));
  must(compute().scale(middle, 0.5));
  must(compute().fill(a.view().columns(0, 1), -2.0));
  must(compute().copy(b.view().columns(8, 1), a.view().columns(8, 1)));
  Matrix expected = x;
  for (int i = 0; i < 5; ++i) {
    expected(i, 0) = -2.0;
    expected(i, 8) = y(i, 8);
  }
  const Matrix sum = [&] {
    Matrix out(2, 3);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 3; ++j) out(i, j) = x(1 + i, 2 + j) + y(3 + i, 5 + j);
    }
    return rounded(compute(), out, type());
  }();
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) expected(1 + i, 2 + j) = sum(i, j) / 2;
  }
  expect_equal(read(compute(), a.view()), expected);
}

struct Normalized {
  std::vector<long double> y;
  long double loss = 0;  // sum of y * dy
};
Normalized layer_norm(const Matrix& x, const Matrix& gamma, const Matrix& beta, const Matrix& dy) {
  Normalized out;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    long double mean = 0, variance = 0;
    for (std::int64_t j = 0; j < x.cols; ++j) mean += x(i, j) / static_cast<long double>(x.cols);
    for (std::int64_t j = 0; j < x.cols; ++j) {
      variance += (x(i, j) - mean) * (x(i, j) - mean) / static_cast<long double>(x.cols);
    }
    for (std::int64_t j = 0; j < x.cols; ++j) {
      out.y.push_back((x(i, j) - mean) / std::sqrt(variance + 1e-5L) * gamma(0, j) + beta(0, j));
      out.loss += out.y.back() * dy(i, j);
    }
  }
  return out;
}

TEST_P(OnTypes, LayerNormAndItsGradients) {
  Matrix x = random(4, 9, 7), gamma = random(1, 9, 8), beta = random(1, 9, 9);
  const Matrix dy = random(4, 9, 10);
  const auto of = [&](const Matrix& m) { return tensor_of(compute(), m, type()); };
  const Tensor tx = of(x), tg = of(gamma), tb = of(beta), tdy = of(dy), y = of(x), dx = of(x);
  const Tensor stats = empty_tensor(compute(), 4, 2, wide());
  const Tensor dgamma = tensor_of(compute(), random_matrix(1, 9, 11), wide());
  const Tensor dbeta = empty_tensor(compute(), 1, 9, wide());
  must(compute().fill(dbeta.view(), 0.0));
  must(compute().layer_norm(tx.view(), tg.view(), tb.view(), y.view(), stats.view()));
  must(compute().layer_norm_backward(tx.view(), tg.view(), stats.view(), tdy.view(), dx.view(),
                                     dgamma.view(), dbeta.view(), Update::kAdd));

  Matrix value(4, 9);
  const Normalized reference = layer_norm(x, gamma, beta, dy);
  for (std::size_t i = 0; i < value.x.size(); ++i) {
    value.x[i] = static_cast<double>(reference.y[i]);
  }
  const auto differences = [&](Matrix& varied) {
    Matrix out(varied.rows, varied.cols);
    for (std::size_t i = 0; i < varied.x.size(); ++i) {
      const double h = 1e-5, at = varied.x[i];
      varied.x[i] = at + h;
      const long double above = layer_norm(x, gamma, beta, dy).loss;
      varied.x[i] = at - h;
      const long double below = layer_norm(x, gamma, beta, dy).loss;
      varied.x[i] = at;
      out.x[i] = static_cast<double>((above - below) / (2 * static_cast<long double>(h)));
    }
    return out;
  };
  const double allowed = 8 * tolerance() + 1e-8;
  expect_near(read(compute(), y.view()), value, allowed);
  expect_near(read(compute(), dx.view()), differences(x), allowed);
  Matrix added = differences(gamma);
  for (int j = 0; j < 9; ++j) added.x[j] += random_matrix(1, 9, 11).x[j];
  expect_near(read(compute(), dgamma.view()), added, 1e-8 + 64 * rounding_of(wide()));
  expect_near(read(compute(), dbeta.view()), differences(beta), 1e-8 + 64 * rounding_of(wide()));
}

TEST_P(OnTypes, DropoutGoesByGlobalPlace) {
  const Matrix x = random(40, 50, 12);
  DropoutKey key{.seed = 3, .stream = 4, .first_row = 100, .global_cols = 50, .probability = 0.25};
  const Tensor whole = tensor_of(compute(), x, type()), parts = tensor_of(compute(), x, type());
  must(compute().dropout(key, whole.view(), whole.view()));
  for (int row : {0, 20}) {
    for (int col : {0, 25}) {
      DropoutKey at = key;
      at.first_row += row;
      at.first_col = col;
      const View part = parts.view().row_range(row, 20).columns(col, 25);
      must(compute().dropout(at, part, part));
    }
  }
  const Matrix kept = read(compute(), whole.view());
  expect_equal(read(compute(), parts.view()), kept);
  int dropped = 0;
  for (std::size_t i = 0; i < kept.x.size(); ++i) {
    dropped += kept.x[i] == 0.0 && x.x[i] != 0.0;
    if (kept.x[i] != 0.0) {
      ASSERT_NEAR(kept.x[i], x.x[i] / 0.75, 2 * rounding_of(type())) << i;
    }
  }
  // 2000 trials at 1/4: mean 500, deviation 19.4.
  EXPECT_NEAR(dropped, 500, 5 * 19.4);
  key.stream = 5;
  const Tensor other = tensor_of(compute(), x, type());
  must(compute().dropout(key, other.view(), other.view()));
  EXPECT_NE(read(compute(), other.view()), kept);
}

TEST_P(OnTypes, CrossEntropyAndItsGradient) {
  const Matrix logits = random(6, 5, 13);
  const std::vector<std::int32_t> labels = {0, 4, 2, 1, 3, 3};
  const auto loss_of = [&](const Matrix& y) {
    long double loss = 0;
    for (int i = 0; i < 6; ++i) {
      long double sum = 0;
      for (int j = 0; j < 5; ++j) sum += std::exp(static_cast<long double>(y(i, j)));
      loss += std::log(sum) - y(i, labels[i]);
    }
    return loss;
  };
  Matrix gradient(6, 5);
  int correct = 0;
  for (int i = 0; i < 6; ++i) {
    int best = 0;
    for (int j = 0; j < 5; ++j) {
      Matrix above = logits, below = logits;
      above(i, j) += 1e-5;
      below(i, j) -= 1e-5;
      gradient(i, j) = static_cast<double>((loss_of(above) - loss_of(below)) / 2e-5L) * 8 / 24;
      if (logits(i, j) > logits(i, best)) best = j;
    }
    correct += best == labels[i];
  }
  const Tensor y = tensor_of(compute(), logits, type());
  const Tensor dy = empty_tensor(compute(), 6, 5, type());
  const auto score = must(compute().cross_entropy(y.view(), labels, 24.0, 8.0, dy.view()));
  EXPECT_NEAR(score.loss_sum, static_cast<double>(loss_of(logits)), 100 * rounding_of(wide()));
  EXPECT_EQ(score.correct, correct);
  EXPECT_EQ(score.rows, 6);
  expect_near(read(compute(), dy.view()), gradient, tolerance() + 1e-9);
  const auto only = must(compute().cross_entropy(y.view(), labels, 24.0, 8.0, View{}));
  EXPECT_EQ(only.loss_sum, score.loss_sum);
  // Logits that exp alone would not survive.
  const Tensor large = empty_tensor(compute(), 6, 5, type());
  must(compute().fill(large.view(), 1000.0));
  EXPECT_NEAR(must(compute().cross_entropy(large.view(), labels, 1.0, 1.0, View{})).loss_sum,
              6 * std::log(5.0), 1e-5);
}

TEST_P(OnTypes, MeanSquareAndSums) {
  Matrix x = random(3, 13, 14), gradient(3, 13);
  double sum = 0;
  for (std::size_t i = 0; i < x.x.size(); ++i) {
    sum += x.x[i] * x.x[i];
    gradient.x[i] = 2 * x.x[i] * 4 / 39;
  }
  const Tensor y = tensor_of(compute(), x, type()), dy = empty_tensor(compute(), 3, 13, type());
  const auto score = must(compute().mean_square(y.view(), 39.0, 4.0, dy.view()));
  EXPECT_NEAR(score.loss_sum, sum, 1e-12);
  EXPECT_EQ(score.rows, 3);
  expect_near(read(compute(), dy.view()), gradient, tolerance());
  EXPECT_NEAR(must(compute().sum_of_squares(y.view())), sum, 1e-12);
}

TEST_P(OnTypes, LongRowsAreLookedAtInPieces) {
  constexpr std::int64_t kCols = 5001;
  Matrix x = random(2, kCols, 17);
  long double sum = 0;
  for (const double value : x.x) sum += static_cast<long double>(value) * value;
  const Tensor y = tensor_of(compute(), x, type());
  EXPECT_NEAR(must(compute().sum_of_squares(y.view())), static_cast<double>(sum), 1e-9);
  x(1, 4096) = x(1, 4999) = std::nan("");
  const Tensor bad = tensor_of(compute(), x, type());
  EXPECT_EQ(must(compute().find_not_finite(bad.view())), kCols + 4096);
}

TEST_P(OnTypes, FindsTheFirstThatIsNotFinite) {
  for (const double bad : {std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(), std::nan("")}) {
    Matrix x = random(4, 33, 15);
    EXPECT_EQ(must(compute().find_not_finite(tensor_of(compute(), x, type()).view())),
              std::nullopt);
    x(2, 31) = x(3, 0) = bad;
    const Tensor t = tensor_of(compute(), x, type());
    EXPECT_EQ(must(compute().find_not_finite(t.view())), 2 * 33 + 31);
    EXPECT_EQ(must(compute().find_not_finite(t.view().columns(0, 31))), 3 * 31);
  }
}

TEST_P(OnTypes, StepsFollowThePublishedFormulas) {
  if (type() != wide()) {
    double place = 0.0;
    const View x{&place, 1, 1, 1, type()};
    EXPECT_EQ(
        message_of(compute().sgd(0.1, 0.0, x, x, x)),
        std::string("sgd: 1 x 1 ") + name_of(type()) + ": it must be one row of fp32 or fp64");
    return;
  }
  const int n = 37;
  const tr::par::AdamWOptions how{.lr = 0.01, .weight_decay = 0.1};
  Matrix x = random(1, n, 16), m(1, n), v(1, n), sgd_x = x, velocity(1, n);
  const Tensor tx = tensor_of(compute(), x, type()), tm = tensor_of(compute(), m, type());
  const Tensor tv = tensor_of(compute(), v, type()), sx = tensor_of(compute(), x, type());
  const Tensor sv = tensor_of(compute(), velocity, type());
  for (int t = 1; t <= 3; ++t) {
    const Matrix g = random(1, n, 20 + t);
    const Tensor tg = tensor_of(compute(), g, type());
    must(compute().adamw(how, t, tg.view(), tm.view(), tv.view(), tx.view()));
    must(compute().sgd(0.1, 0.9, tg.view(), sv.view(), sx.view()));
    for (int i = 0; i < n; ++i) {
      m.x[i] = 0.9 * m.x[i] + 0.1 * g.x[i];
      v.x[i] = 0.999 * v.x[i] + 0.001 * g.x[i] * g.x[i];
      const double mean = m.x[i] / (1 - std::pow(0.9, t)),
                   square = v.x[i] / (1 - std::pow(0.999, t));
      x.x[i] -= 0.01 * (mean / (std::sqrt(square) + 1e-8) + 0.1 * x.x[i]);
      velocity.x[i] = 0.9 * velocity.x[i] + g.x[i];
      sgd_x.x[i] -= 0.1 * velocity.x[i];
    }
  }
  expect_near(read(compute(), tx.view()), x, 20 * rounding_of(type()));
  expect_near(read(compute(), tm.view()), m, 20 * rounding_of(type()));
  expect_near(read(compute(), tv.view()), v, 20 * rounding_of(type()));
  expect_near(read(compute(), sx.view()), sgd_x, 20 * rounding_of(type()));
}

TEST(Compute, RefusesBadArgumentsAndNamesThem) {
  for (const char* name : {"ref", "dry"}) {
    const auto compute =
        must(name == std::string("ref") ? make_compute(name) : tr::par::make_host_compute(name));
    const Tensor a = empty_tensor(*compute, 2, 3, DType::kFloat32);
    const Tensor b = empty_tensor(*compute, 3, 3, DType::kFloat32);
    const Tensor row = empty_tensor(*compute, 1, 2, DType::kFloat32);
    EXPECT_EQ(message_of(compute->add(a.view(), b.view())),
              "add: 2 x 3 fp32 and 3 x 3 fp32 must be the same");
    EXPECT_EQ(message_of(compute->add_row(row.view(), a.view())),
              "add_row: a row of 1 x 2 fp32 for 2 x 3 fp32");
    EXPECT_EQ(message_of(compute->fill(View{nullptr, 2, 3, 3, DType::kFloat32}, 0)),
              "fill: a matrix of 2 x 3 fp32 without memory");
    EXPECT_EQ(
        message_of(compute->dropout({.global_cols = 3, .probability = 1.0}, a.view(), a.view())),
        "dropout: a probability of 1.000000: it must be at least 0 and less than 1");
  }
  const auto compute = must(make_compute("ref"));
  const Tensor y = empty_tensor(*compute, 2, 3, DType::kFloat32);
  const std::vector<std::int32_t> labels = {1, 3};
  EXPECT_EQ(message_of(compute->cross_entropy(y.view(), labels, 2.0, 1.0, View{})),
            "cross_entropy: row 1 has label 3, of 3 classes");
}

}  // namespace
