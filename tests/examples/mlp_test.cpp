// The network of the trainer: gradients against finite differences of an independent forward pass
// in double precision, and what data and initial values must not depend on.
#include "train_mlp/mlp.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "train_mlp/counter_rng.hpp"
#include "train_mlp/data.hpp"
#include "train_mlp/optimizer.hpp"

namespace {

using train::Activation;
using train::Net;

double act(Activation activation, double z) {
  if (activation == Activation::kRelu) return std::max(z, 0.0);
  if (activation == Activation::kGelu) return 0.5 * z * std::erfc(-z / std::sqrt(2.0));
  return z;
}

// The loss, written from the formulas of mlp.hpp without its code.
double loss_of(const Net& net, const std::vector<double>& parameters, const train::Table& batch) {
  double sum = 0.0;
  for (int row = 0; row < batch.rows(); ++row) {
    std::vector<double> x(batch.x.begin() + row * batch.features,
                          batch.x.begin() + (row + 1) * batch.features);
    for (const train::Layer& layer : net.layers) {
      std::vector<double> y(layer.out);
      for (int j = 0; j < layer.out; ++j) {
        double z = layer.has_bias ? parameters[layer.bias_at + j] : 0.0;
        for (int i = 0; i < layer.in; ++i)
          z += x[i] * parameters[layer.weight_at + i * layer.out + j];
        y[j] = act(layer.activation, z);
      }
      x = y;
    }
    if (net.loss == train::Loss::kMeanSquare) {
      for (const double y : x) sum += y * y / (static_cast<double>(batch.rows()) * net.outputs());
    } else {
      double total = 0.0;
      for (const double y : x) total += std::exp(y);
      sum += (std::log(total) - x[batch.y[row]]) / batch.rows();
    }
  }
  return sum;
}

train::Table random_batch(int rows, int features, int classes) {
  train::Table batch;
  batch.features = features;
  batch.classes = classes;
  for (int i = 0; i < rows * features; ++i) batch.x.push_back(train::random_symmetric(3, 1, i));
  for (int i = 0; i < rows && classes > 0; ++i) {
    batch.y.push_back(static_cast<std::uint8_t>(train::random_bits(3, 2, i) % classes));
  }
  return batch;
}

void check_gradient(const Net& net, const train::Table& batch) {
  compute::Backend backend = std::move(compute::make_backend("host", 0, "ref")).value();
  std::vector<float> parameters(net.parameters()), gradients(net.parameters(), NAN);
  train::initialize(net, 5, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] += 0.05f * train::random_symmetric(9, 9, i);  // biases too
  }
  train::Mlp mlp(net, backend, batch.rows());
  mlp.forward(parameters, batch.x, batch.rows());
  const double D = net.loss == train::Loss::kMeanSquare
                       ? static_cast<double>(batch.rows()) * net.outputs()
                       : batch.rows();
  mlp.loss(batch.y, D);
  const train::Score score = mlp.score();
  std::vector<int> order;
  mlp.backward(parameters, gradients, [&](int layer) { order.push_back(layer); });
  std::vector<int> last_first(net.layers.size());
  std::iota(last_first.rbegin(), last_first.rend(), 0);
  EXPECT_EQ(order, last_first);

  std::vector<double> at(parameters.begin(), parameters.end());
  EXPECT_NEAR(score.loss_sum / D, loss_of(net, at, batch), 1e-6);
  constexpr double kStep = 1e-5;
  for (int sample = 0; sample < 60; ++sample) {
    const std::size_t i = train::random_bits(11, 0, sample) % at.size();
    const double saved = at[i];
    at[i] = saved + kStep;
    const double above = loss_of(net, at, batch);
    at[i] = saved - kStep;
    const double below = loss_of(net, at, batch);
    at[i] = saved;
    const double slope = (above - below) / (2 * kStep);
    EXPECT_NEAR(gradients[i], slope, 1e-6 + 1e-4 * std::fabs(slope)) << "parameter " << i;
  }
}

TEST(Mlp, GradientOfTheClassifier) {
  check_gradient(train::make_classifier(std::array{12, 9, 7, 5}), random_batch(11, 12, 5));
}

TEST(Mlp, GradientOfTheSquareNet) {
  check_gradient(train::make_square_net(4, 10), random_batch(8, 10, 0));
}

TEST(Mlp, NoRowsGiveAZeroGradient) {
  const Net net = train::make_classifier(std::array{4, 3, 2});
  compute::Backend backend = std::move(compute::make_backend("host", 0, "ref")).value();
  std::vector<float> parameters(net.parameters(), 0.5f), gradients(net.parameters(), NAN);
  train::Mlp mlp(net, backend, 1);
  mlp.forward(parameters, {}, 0);
  mlp.loss({}, 7.0);
  EXPECT_EQ(mlp.score().loss_sum, 0.0);
  mlp.backward(parameters, gradients, [](int) {});
  EXPECT_EQ(gradients, std::vector<float>(net.parameters(), 0.0f));
}

TEST(Mlp, ParametersAndPresets) {
  EXPECT_EQ(train::make_classifier(std::array{784, 256, 128, 10}).parameters(), 235146u);
  EXPECT_EQ(train::make_classifier(std::array{64, 128, 128, 10}).parameters(), 26122u);
  EXPECT_EQ(train::make_square_net(4, 1024).parameters(), 4194304u);
  // The last layer lies first, bias behind its weights.
  const Net net = train::make_classifier(std::array{4, 3, 2});
  EXPECT_EQ(net.layers[1].weight_at, 0u);
  EXPECT_EQ(net.layers[1].bias_at, 6u);
  EXPECT_EQ(net.layers[0].weight_at, 8u);
  EXPECT_EQ(net.layers[0].bias_at, 20u);
}

TEST(Mlp, InitialValuesDifferPerLayerAndHaveTheirVariance) {
  const Net net = train::make_square_net(4, 100);
  std::vector<float> parameters(net.parameters());
  train::initialize(net, 1, parameters);
  std::set<float> firsts;
  for (const train::Layer& layer : net.layers) firsts.insert(parameters[layer.weight_at]);
  EXPECT_EQ(firsts.size(), 4u);
  double sum = 0.0, squares = 0.0;
  for (const float p : parameters) sum += p, squares += static_cast<double>(p) * p;
  const double count = static_cast<double>(parameters.size());
  EXPECT_NEAR(sum / count, 0.0, 0.002);  // sigma of the mean: 0.1 / 200
  EXPECT_NEAR(squares / count, 1.0 / 100, 0.0003);
}

TEST(AdamW, FollowsTheFormula) {
  // One parameter in double precision, step by step.
  compute::Backend backend = std::move(compute::make_backend("host", 0, "ref")).value();
  train::AdamW optimizer(1, backend, {.lr = 0.1});
  std::array<float, 1> p{2.0f};
  double m = 0.0, v = 0.0, expected = 2.0;
  for (int t = 1; t <= 20; ++t) {
    const float g = std::sin(static_cast<float>(t));
    optimizer.step(p, std::array{g});
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    expected -= 0.1 * 0.01 * expected;
    expected -=
        0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
    ASSERT_NEAR(p[0], expected, 2e-5) << "step " << t;
  }
}

TEST(Data, SharesCoverABatchOnce) {
  for (const int rows : {0, 1, 3, 29, 128, 1000}) {
    for (int size = 1; size <= 9; ++size) {
      int next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const train::Range range = train::share(rows, rank, size);
        EXPECT_EQ(range.first, next);
        EXPECT_LE(range.count(), rows / size + 1);
        EXPECT_GE(range.count(), rows / size);
        next = range.last;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

TEST(Data, PermutationsAreWholeAndDiffer) {
  auto first = train::permutation(1000, 1, 0);
  EXPECT_EQ(first, train::permutation(1000, 1, 0));
  EXPECT_NE(first, train::permutation(1000, 1, 1));
  EXPECT_NE(first, train::permutation(1000, 2, 0));
  std::sort(first.begin(), first.end());
  for (std::uint32_t i = 0; i < 1000; ++i) ASSERT_EQ(first[i], i);
}

TEST(Data, Digits) {
  const auto data = train::load_digits(std::string(TRAIN_DATA_DIR) + "/digits.csv.gz");
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ(data.value().train.rows(), 1437);
  EXPECT_EQ(data.value().test.rows(), 360);
  // Over both parts: the sum of all pixels is 561718 (by zcat | awk), and every digit occurs 174 to
  // 183 times.
  double sum = 0.0;
  std::array<int, 10> times{};
  for (const train::Table* t : {&data.value().train, &data.value().test}) {
    for (const float x : t->x) sum += x * 16.0;
    for (const std::uint8_t y : t->y) ++times[y];
  }
  EXPECT_EQ(sum, 561718.0);
  for (const int count : times) EXPECT_TRUE(count >= 174 && count <= 183) << count;
}

TEST(Data, BadFilesAreExplained) {
  const auto missing = train::load_digits("/nonexistent.gz");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("/nonexistent.gz"), std::string::npos);
  const auto wrong = train::load_digits(std::string(TRAIN_DATA_DIR) + "/README.md");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("line 1"), std::string::npos) << wrong.error().message;
}

}  // namespace
