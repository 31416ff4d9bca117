// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019) over one flat
// vector. Element by element and in a fixed order: equal gradients give equal parameters, bit for
// bit.
#pragma once

#include <cstddef>
#include <span>

#include "compute/backend.hpp"

namespace train {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

class AdamW {
 public:
  AdamW(std::size_t parameters, compute::Backend& backend, const AdamWOptions& options);
  // Both lie on the backend's device.
  void step(std::span<float> parameters, std::span<const float> gradients);

 private:
  AdamWOptions options_;
  compute::Operations& operations_;
  int steps_ = 0;
  compute::Array<float> m_, v_;  // running means of the gradient and of its square
};

}  // namespace train
