#include "train_mlp/mlp.hpp"

#include <algorithm>
#include <cmath>

#include "train_mlp/counter_rng.hpp"

namespace train {
namespace {

float activate(Activation activation, float z) {
  switch (activation) {
    case Activation::kNone:
      return z;
    case Activation::kRelu:
      return z > 0.0f ? z : 0.0f;
    case Activation::kGelu:
      return 0.5f * z * (1.0f + std::erf(z * 0.70710678f));
  }
  return z;
}

float slope(Activation activation, float z) {
  switch (activation) {
    case Activation::kNone:
      return 1.0f;
    case Activation::kRelu:
      return z > 0.0f ? 1.0f : 0.0f;
    case Activation::kGelu:  // cdf(z) + z pdf(z) of the normal distribution
      return 0.5f * (1.0f + std::erf(z * 0.70710678f)) + z * 0.39894228f * std::exp(-0.5f * z * z);
  }
  return 1.0f;
}

// Places the layers in the parameter vector, the last one first.
void place(Net& net) {
  std::size_t at = 0;
  for (auto layer = net.layers.rbegin(); layer != net.layers.rend(); ++layer) {
    layer->weight_at = at;
    layer->bias_at = at + static_cast<std::size_t>(layer->in) * layer->out;
    at += layer->parameters();
  }
}

}  // namespace

std::size_t Net::parameters() const {
  std::size_t sum = 0;
  for (const Layer& layer : layers) sum += layer.parameters();
  return sum;
}

std::string Net::to_string() const {
  std::string text = std::to_string(inputs());
  for (const Layer& layer : layers) text += "-" + std::to_string(layer.out);
  text += layers.front().activation == Activation::kGelu ? " gelu, " : " relu, ";
  return text + std::to_string(parameters()) + " parameters";
}

Net make_classifier(std::span<const int> widths) {
  Net net;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool is_last = i + 2 == widths.size();
    net.layers.push_back({.in = widths[i],
                          .out = widths[i + 1],
                          .has_bias = true,
                          .activation = is_last ? Activation::kNone : Activation::kRelu});
  }
  place(net);
  return net;
}

Net make_square_net(int layers, int width) {
  Net net;
  net.loss = Loss::kMeanSquare;
  net.layers.assign(layers, {.in = width, .out = width, .activation = Activation::kGelu});
  place(net);
  return net;
}

void initialize(const Net& net, std::uint64_t seed, std::span<float> parameters) {
  std::fill(parameters.begin(), parameters.end(), 0.0f);
  for (std::size_t l = 0; l < net.layers.size(); ++l) {
    const Layer& layer = net.layers[l];
    const float variance = (layer.activation == Activation::kRelu ? 2.0f : 1.0f) / layer.in;
    const float bound = std::sqrt(3.0f * variance);
    for (std::size_t i = layer.weight_at; i < layer.bias_at; ++i) {
      parameters[i] = bound * random_symmetric(seed, 2 * l, i - layer.weight_at);
    }
  }
}

Mlp::Mlp(const Net& net, Gemm& gemm, int max_rows) : net_(net), gemm_(gemm) {
  std::size_t widest = 0;
  for (const Layer& layer : net.layers) {
    const std::size_t size = static_cast<std::size_t>(max_rows) * layer.out;
    z_.emplace_back(size);
    a_.emplace_back(size);
    widest = std::max({widest, size, static_cast<std::size_t>(max_rows) * layer.in});
  }
  upper_.resize(widest);
  lower_.resize(widest);
}

std::span<const float> Mlp::forward(std::span<const float> parameters, std::span<const float> x,
                                    int rows) {
  rows_ = rows;
  const float* input = x.data();
  for (std::size_t l = 0; l < net_.layers.size(); ++l) {
    const Layer& layer = net_.layers[l];
    float *z = z_[l].data(), *a = a_[l].data();
    gemm_.multiply(Transpose::kNo, Transpose::kNo, rows, layer.out, layer.in, input,
                   parameters.data() + layer.weight_at, z);
    for (int row = 0; row < rows; ++row, z += layer.out, a += layer.out) {
      if (layer.has_bias) {
        const float* bias = parameters.data() + layer.bias_at;
        for (int j = 0; j < layer.out; ++j) z[j] += bias[j];
      }
      for (int j = 0; j < layer.out; ++j) a[j] = activate(layer.activation, z[j]);
    }
    input = a_[l].data();
  }
  return {input, static_cast<std::size_t>(rows) * net_.outputs()};
}

Score Mlp::score(std::span<const std::uint8_t> labels, double normalizer) {
  return net_.loss == Loss::kMeanSquare ? mean_square(normalizer)
                                        : cross_entropy(labels, normalizer);
}

// loss = log(sum exp(y)) - y[label];  d loss / d y = softmax(y) - one_hot(label)
Score Mlp::cross_entropy(std::span<const std::uint8_t> labels, double normalizer) {
  const int n = net_.outputs();
  const float scale = static_cast<float>(1.0 / normalizer);
  Score score;
  for (int row = 0; row < rows_; ++row) {
    const float* y = a_.back().data() + static_cast<std::size_t>(row) * n;
    float* dy = upper_.data() + static_cast<std::size_t>(row) * n;
    const int label = labels[row];
    const int best = static_cast<int>(std::max_element(y, y + n) - y);
    float sum = 0.0f;
    for (int j = 0; j < n; ++j) sum += dy[j] = std::exp(y[j] - y[best]);
    for (int j = 0; j < n; ++j) dy[j] = (dy[j] / sum - (j == label ? 1.0f : 0.0f)) * scale;
    score.loss_sum += std::log(sum) + y[best] - y[label];
    score.correct += best == label;
  }
  return score;
}

// loss = y^2;  d loss / d y = 2 y
Score Mlp::mean_square(double normalizer) {
  const std::size_t size = static_cast<std::size_t>(rows_) * net_.outputs();
  const float scale = static_cast<float>(2.0 / normalizer);
  Score score;
  for (std::size_t i = 0; i < size; ++i) {
    const float y = a_.back()[i];
    upper_[i] = y * scale;
    score.loss_sum += static_cast<double>(y) * y;
  }
  return score;
}

void Mlp::backward(std::span<const float> parameters, std::span<const float> x,
                   std::span<float> gradients, const std::function<void(int)>& layer_done) {
  for (int l = static_cast<int>(net_.layers.size()) - 1; l >= 0; --l) {
    const Layer& layer = net_.layers[l];
    const float* input = l == 0 ? x.data() : a_[l - 1].data();
    float* dz = upper_.data();
    const std::size_t size = static_cast<std::size_t>(rows_) * layer.out;
    for (std::size_t i = 0; i < size; ++i) dz[i] *= slope(layer.activation, z_[l][i]);

    gemm_.multiply(Transpose::kYes, Transpose::kNo, layer.in, layer.out, rows_, input, dz,
                   gradients.data() + layer.weight_at);
    if (layer.has_bias) {
      float* db = gradients.data() + layer.bias_at;
      std::fill_n(db, layer.out, 0.0f);
      for (int row = 0; row < rows_; ++row) {
        for (int j = 0; j < layer.out; ++j)
          db[j] += dz[static_cast<std::size_t>(row) * layer.out + j];
      }
    }
    // The gradients can travel now, while dx is computed.
    layer_done(l);

    if (l == 0) return;
    gemm_.multiply(Transpose::kNo, Transpose::kYes, rows_, layer.in, layer.out, dz,
                   parameters.data() + layer.weight_at, lower_.data());
    std::swap(upper_, lower_);
  }
}

}  // namespace train
