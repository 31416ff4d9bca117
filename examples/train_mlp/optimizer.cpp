#include "train_mlp/optimizer.hpp"

#include <cmath>

namespace train {

void AdamW::step(std::span<float> parameters, std::span<const float> gradients) {
  ++steps_;
  const double correct1 = 1.0 - std::pow(options_.beta1, steps_);
  const double correct2 = 1.0 - std::pow(options_.beta2, steps_);
  const auto beta1 = static_cast<float>(options_.beta1), beta2 = static_cast<float>(options_.beta2);
  const auto keep = static_cast<float>(1.0 - options_.lr * options_.weight_decay);
  const auto rate = static_cast<float>(options_.lr / correct1);
  const auto root = static_cast<float>(1.0 / std::sqrt(correct2));
  const auto eps = static_cast<float>(options_.eps);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float g = gradients[i];
    m_[i] = beta1 * m_[i] + (1.0f - beta1) * g;
    v_[i] = beta2 * v_[i] + (1.0f - beta2) * g * g;
    parameters[i] = keep * parameters[i] - rate * m_[i] / (std::sqrt(v_[i]) * root + eps);
  }
}

}  // namespace train
