#include "train_mlp/mlp.hpp"

#include <algorithm>
#include <cmath>

#include "must.hpp"
#include "train_mlp/counter_rng.hpp"

namespace train {

using compute::Transpose;
using example::must;

namespace {

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

Mlp::Mlp(const Net& net, compute::Backend& backend, int max_rows) : net_(net), backend_(backend) {
  const auto rows_of = [&](int columns) {
    const std::size_t size = static_cast<std::size_t>(max_rows) * columns;
    return must(compute::Array<float>::make(*backend.device, size));
  };
  int widest = net.inputs();
  for (const Layer& layer : net.layers) {
    z_.push_back(rows_of(layer.out));
    a_.push_back(rows_of(layer.out));
    widest = std::max(widest, layer.out);
  }
  x_ = rows_of(net.inputs());
  upper_ = rows_of(widest);
  lower_ = rows_of(widest);
  labels_ = must(compute::Array<std::uint8_t>::make(*backend.device, max_rows));
  scores_ = must(compute::Array<compute::RowScore>::make(*backend.device, max_rows));
}

Matrix<const float> Mlp::forward(std::span<const float> parameters, std::span<const float> x,
                                 int rows) {
  rows_ = rows;
  Matrix<float> input = rows_of(x_, net_.inputs());
  must(x_.upload(x.first(input.size())));
  for (std::size_t l = 0; l < net_.layers.size(); ++l) {
    const Layer& layer = net_.layers[l];
    const Matrix<const float> weights{parameters.data() + layer.weight_at, layer.in, layer.out};
    const Matrix<float> z = rows_of(z_[l], layer.out), a = rows_of(a_[l], layer.out);
    backend_.gemm->multiply(Transpose::kNo, input, Transpose::kNo, weights, z);
    if (layer.has_bias) backend_.operations->add_bias(z, parameters.data() + layer.bias_at);
    backend_.operations->activate(layer.activation, z, a.data);
    input = a;
  }
  return input;
}

void Mlp::loss(std::span<const std::uint8_t> labels, double normalizer) {
  const Matrix<float> y = rows_of(a_.back(), net_.outputs());
  if (net_.loss == Loss::kMeanSquare) {  // d y^2 / d y = 2 y
    backend_.operations->squares(y, static_cast<float>(2.0 / normalizer), upper_.data(),
                                 scores_.data());
    return;
  }
  must(labels_.upload(labels.first(rows_)));
  backend_.operations->cross_entropy(y, labels_.data(), static_cast<float>(1.0 / normalizer),
                                     upper_.data(), scores_.data());
}

Score Mlp::score() {
  std::vector<compute::RowScore> rows(rows_);
  must(backend_.device->download(rows.data(), scores_.data(), rows.size() * sizeof rows[0]));
  Score score;
  for (const compute::RowScore& row : rows) {
    score.loss_sum += row.loss;
    score.correct += row.correct;
  }
  return score;
}

void Mlp::backward(std::span<const float> parameters, std::span<float> gradients,
                   const std::function<void(int)>& layer_done) {
  for (int l = static_cast<int>(net_.layers.size()) - 1; l >= 0; --l) {
    const Layer& layer = net_.layers[l];
    const Matrix<float> input = l == 0 ? rows_of(x_, layer.in) : rows_of(a_[l - 1], layer.in);
    const Matrix<float> dz = rows_of(upper_, layer.out);
    backend_.operations->activate_backward(layer.activation, rows_of(z_[l], layer.out), dz.data);

    backend_.gemm->multiply(Transpose::kYes, input, Transpose::kNo, dz,
                            {gradients.data() + layer.weight_at, layer.in, layer.out});
    if (layer.has_bias) backend_.operations->sum_rows(dz, gradients.data() + layer.bias_at);
    // The gradients can travel now, while dx is computed.
    layer_done(l);

    if (l == 0) return;
    const Matrix<const float> weights{parameters.data() + layer.weight_at, layer.in, layer.out};
    backend_.gemm->multiply(Transpose::kNo, dz, Transpose::kYes, weights,
                            rows_of(lower_, layer.in));
    std::swap(upper_, lower_);
  }
}

}  // namespace train
