#include "train_mlp/replay.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "must.hpp"

namespace train {

using example::must;

namespace {

// "layer 1 weight [3, 5]"
std::string name_of(const Net& net, std::size_t index) {
  for (std::size_t l = 0; l < net.layers.size(); ++l) {
    const Layer& layer = net.layers[l];
    if (index < layer.weight_at || index >= layer.weight_at + layer.parameters()) continue;
    const std::string name = "layer " + std::to_string(l);
    if (index >= layer.bias_at)
      return name + " bias [" + std::to_string(index - layer.bias_at) + "]";
    const std::size_t i = index - layer.weight_at;
    return name + " weight [" + std::to_string(i / layer.out) + ", " +
           std::to_string(i % layer.out) + "]";
  }
  return "element " + std::to_string(index);
}

}  // namespace

SerialReplay::SerialReplay(const Net& net, compute::Backend& backend, const AdamWOptions& options,
                           int ranks, int batch, std::span<const float> initial_parameters)
    : net_(net),
      ranks_(ranks),
      error_is_bounded_(backend.gemm->rows_are_independent()),
      mlp_(net, backend, batch),
      optimizer_(net.parameters(), backend, options),
      parameters_(must(compute::Array<float>::copy_of(*backend.device, initial_parameters))),
      gradients_(must(compute::Array<float>::make(*backend.device, net.parameters()))) {}

std::vector<float> SerialReplay::gradient(const Table& batch, Range rows, double normalizer) {
  const std::size_t width = batch.features;
  const auto x = std::span(batch.x).subspan(rows.first * width, rows.count() * width);
  const auto y = std::span(batch.y).subspan(batch.y.empty() ? 0 : rows.first,
                                            batch.y.empty() ? 0 : rows.count());
  mlp_.forward(parameters_.span(), x, rows.count());
  mlp_.loss(y, normalizer);
  mlp_.backward(parameters_.span(), gradients_.span(), [](int) {});
  return must(gradients_.download());
}

tr::Status SerialReplay::compare(const char* what, std::span<const float> serial,
                                 std::span<const float> parallel) const {
  for (std::size_t i = 0; i < serial.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(serial[i]) == std::bit_cast<std::uint32_t>(parallel[i]))
      continue;
    char values[80];
    std::snprintf(values, sizeof values, "%a in the serial run, %a over %d ranks", serial[i],
                  parallel[i], ranks_);
    return tr::Error{TR_INTERNAL_ERROR, "step " + std::to_string(steps_) + ": " + what + " " +
                                            name_of(net_, i) + " is " + values};
  }
  return {};
}

tr::Status SerialReplay::step(const Table& batch, double normalizer,
                              std::span<const float> gradients, std::span<const float> parameters) {
  ++steps_;
  const std::vector<float> whole = gradient(batch, {0, batch.rows()}, normalizer);
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const double d = static_cast<double>(gradients[i]) - whole[i];
    difference += d * d;
    norm += static_cast<double>(whole[i]) * whole[i];
  }
  const double error = norm == 0.0 ? std::sqrt(difference) : std::sqrt(difference / norm);
  worst_error_ = std::max(worst_error_, error);
  if (error_is_bounded_ && !(error <= kTolerance)) {
    return tr::Error{TR_INTERNAL_ERROR,
                     "step " + std::to_string(steps_) +
                         ": the reduced gradient is off the gradient of the whole "
                         "batch by " +
                         std::to_string(error) + " (relative)"};
  }

  std::vector<float> sum = gradient(batch, share(batch.rows(), 0, ranks_), normalizer);
  for (int q = 1; q < ranks_; ++q) {
    const std::vector<float> part = gradient(batch, share(batch.rows(), q, ranks_), normalizer);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  if (auto s = compare("gradient of", sum, gradients); !s) return s;
  if (auto s = gradients_.upload(sum); !s) return s;
  optimizer_.step(parameters_.span(), gradients_.span());
  return compare("parameter", must(parameters_.download()), parameters);
}

}  // namespace train
