// A multi-layer perceptron with its forward and backward pass written out: no automatic
// differentiation, so that the places where gradients become ready are in plain sight.
//
//   forward    z_l = x_l W_l + b_l         x_{l+1} = act(z_l)
//   backward   dz_l = dx_{l+1} * act'(z_l)
//              dW_l = x_l^T dz_l           db_l = column sums of dz_l        dx_l = dz_l W_l^T
//
// Rows are samples; matrices are row-major.
//
// All parameters of a net lie in one vector, the last layer first: the order in which the backward
// pass finishes them, so that a bucket of gradients is a slice of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compute/backend.hpp"

namespace train {

using compute::Activation;
using compute::Matrix;

enum class Loss {
  kSoftmaxCrossEntropy,  // of the labels; D = rows
  kMeanSquare,           // of the outputs themselves; D = rows * outputs
};

struct Layer {
  int in = 0, out = 0;
  bool has_bias = false;
  Activation activation = Activation::kNone;
  std::size_t weight_at = 0, bias_at = 0;  // in the parameter vector; the bias follows its weights
  std::size_t parameters() const {
    return static_cast<std::size_t>(in) * out + (has_bias ? static_cast<std::size_t>(out) : 0);
  }
};

struct Net {
  std::vector<Layer> layers;
  Loss loss = Loss::kSoftmaxCrossEntropy;
  std::size_t parameters() const;
  int inputs() const { return layers.front().in; }
  int outputs() const { return layers.back().out; }
  std::string to_string() const;  // "64-128-10 relu, 9610 parameters"
};

// 784-256-10 and the like: ReLU, biases, softmax cross entropy.
Net make_classifier(std::span<const int> widths);
// `layers` square layers with GELU after each, no bias, loss = mean of the squared outputs.
Net make_square_net(int layers, int width);

// Uniform with variance 2 / in after a ReLU, 1 / in otherwise; biases 0. The same numbers on every
// rank and for every number of ranks.
void initialize(const Net& net, std::uint64_t seed, std::span<float> parameters);

// Sums over the rows that were given, not means.
struct Score {
  double loss_sum = 0.0;
  std::int64_t correct = 0;
};

// One forward and backward pass of up to `max_rows` rows, and the memory for it, on the backend's
// device. Parameters and gradients lie there, inputs and labels in the host's memory.
class Mlp {
 public:
  Mlp(const Net& net, compute::Backend& backend, int max_rows);

  // Outputs (rows x outputs) of x (rows x inputs), on the device; valid until the next forward.
  Matrix<const float> forward(std::span<const float> parameters, std::span<const float> x,
                              int rows);
  // Loss of the last forward. The gradient with respect to the outputs is left for backward,
  // divided by `normalizer`: the *global* D, so that gradients of the ranks are summed and never
  // averaged.
  void loss(std::span<const std::uint8_t> labels, double normalizer);
  // Of the last loss; waits for it.
  Score score();
  // Overwrites `gradients`. layer_done(l) is called as soon as layer l's have been asked of the
  // device, last layer first.
  void backward(std::span<const float> parameters, std::span<float> gradients,
                const std::function<void(int)>& layer_done);

 private:
  Matrix<float> rows_of(const compute::Array<float>& values, int columns) const {
    return {values.data(), rows_, columns};
  }

  const Net& net_;
  compute::Backend& backend_;
  int rows_ = 0;
  compute::Array<float> x_;
  compute::Array<std::uint8_t> labels_;
  std::vector<compute::Array<float>> z_;  // per layer: before the activation
  std::vector<compute::Array<float>> a_;  // and after it
  compute::Array<float> upper_, lower_;   // gradients of a layer's outputs and of its inputs
  compute::Array<compute::RowScore> scores_;
};

}  // namespace train
