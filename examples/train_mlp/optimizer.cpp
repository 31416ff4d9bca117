#include "train_mlp/optimizer.hpp"

#include <cmath>

#include "must.hpp"

namespace train {

using example::must;

AdamW::AdamW(std::size_t parameters, compute::Backend& backend, const AdamWOptions& options)
    : options_(options),
      operations_(*backend.operations),
      m_(must(compute::Array<float>::make(*backend.device, parameters))),
      v_(must(compute::Array<float>::make(*backend.device, parameters))) {
  m_.clear();
  v_.clear();
}

void AdamW::step(std::span<float> parameters, std::span<const float> gradients) {
  ++steps_;
  const double correct1 = 1.0 - std::pow(options_.beta1, steps_);
  const double correct2 = 1.0 - std::pow(options_.beta2, steps_);
  compute::AdamWFactors factors;
  factors.beta1 = static_cast<float>(options_.beta1);
  factors.beta2 = static_cast<float>(options_.beta2);
  factors.keep = static_cast<float>(1.0 - options_.lr * options_.weight_decay);
  factors.rate = static_cast<float>(options_.lr / correct1);
  factors.root = static_cast<float>(1.0 / std::sqrt(correct2));
  factors.eps = static_cast<float>(options_.eps);
  operations_.adamw(factors, gradients, m_.data(), v_.data(), parameters.data());
}

}  // namespace train
