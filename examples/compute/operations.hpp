// What a training step computes besides matrix products: activations, losses, the optimizer.
//
// All pointers, spans and matrices lie in the memory of the device that the operations were made
// for, and the operations take their turn on its stream. Inputs and outputs do not overlap, but
// where one argument is both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "compute/device.hpp"
#include "compute/matrix.hpp"

namespace compute {

enum class Activation : std::uint8_t { kNone, kRelu, kGelu };

// Of one row.
struct RowScore {
  double loss = 0.0;
  std::int32_t correct = 0;  // 1: the largest output is the label's
};

// AdamW's step, with what does not depend on the element worked out (train_mlp/optimizer.cpp).
struct AdamWFactors {
  float beta1 = 0.0f, beta2 = 0.0f;
  float keep = 1.0f;  // 1 - lr * weight_decay
  float rate = 0.0f;  // lr / (1 - beta1^t)
  float root = 1.0f;  // 1 / sqrt(1 - beta2^t)
  float eps = 0.0f;
};

class Operations {
 public:
  virtual ~Operations() = default;
  // z(r, c) += bias[c]
  virtual void add_bias(Matrix<float> z, const float* bias) = 0;
  // a = act(z)
  virtual void activate(Activation act, Matrix<const float> z, float* a) = 0;
  // d *= act'(z)
  virtual void activate_backward(Activation act, Matrix<const float> z, float* d) = 0;
  // sums[c] = sum of x(r, c) over r, in this order
  virtual void sum_rows(Matrix<const float> x, float* sums) = 0;
  // scores[r].loss = log(sum_c exp(y(r, c))) - y(r, labels[r])
  // dy(r, c) = (softmax(y)(r, c) - (c == labels[r])) * scale
  virtual void cross_entropy(Matrix<const float> y, const std::uint8_t* labels, float scale,
                             float* dy, RowScore* scores) = 0;
  // scores[r].loss = sum of y(r, c)^2 over c;  dy = y * scale
  virtual void squares(Matrix<const float> y, float scale, float* dy, RowScore* scores) = 0;
  // m, v: running means of the gradient and of its square.
  virtual void adamw(const AdamWFactors& factors, std::span<const float> gradients, float* m,
                     float* v, float* parameters) = 0;
};

std::unique_ptr<Operations> make_operations(Device& device);

}  // namespace compute
