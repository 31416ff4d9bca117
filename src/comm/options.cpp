// What can be set on a communicator that exists.
#include <string>

#include "comm/communicator.hpp"

namespace treering {

Status Communicator::set_algorithm(const std::string& collective, const std::string& algorithm) {
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto id = static_cast<Collective>(c);
    if (collective != collective_name(id) || id == Collective::kSendRecv) continue;
    if (algorithm == "auto") {
      forced_[c].clear();
      scratch_reusable_ = false;
      return {};
    }
    const algos::Algorithm* found = algos::find_algorithm(id, algorithm);
    const char* why = found != nullptr ? algos::why_unsupported(*found, size_, &*hosts_) : nullptr;
    if (found == nullptr || why != nullptr) {
      return invalid_argument(
          "there is no " + collective + " algorithm \"" + algorithm + "\" for " +
          std::to_string(size_) + " ranks" + (why != nullptr ? std::string(": ") + why : "") +
          "; there are: auto, " + algos::algorithm_names(id, size_, nullptr, &*hosts_));
    }
    forced_[c] = algorithm;
    scratch_reusable_ = false;
    return {};
  }
  std::string names;
  for (int c = 0; c < kNumCollectives - 1; ++c) {
    names += std::string(c > 0 ? ", " : "") + collective_name(static_cast<Collective>(c));
  }
  return invalid_argument("there is no collective \"" + collective + "\"; there are: " + names);
}

Status Communicator::set_ordered(bool ordered) {
  scratch_reusable_ = false;
  config_.ordered = ordered;
  return {};
}

Status Communicator::set_copy_engine(std::int64_t use) {
  config_.copy_engine = use;
  return {};
}

Status Communicator::set_timeout_ms(std::int64_t timeout_ms) {
  if (timeout_ms < 0)
    return invalid_argument("the timeout must be 0 (never) or positive, got " +
                            std::to_string(timeout_ms) + " ms");
  config_.timeout_ms = timeout_ms;
  if (device_ != nullptr) device_->set_timeout_ms(device_timeout_ms(timeout_ms));
  return {};
}

Status Communicator::set_warn_ms(std::int64_t warn_ms) {
  if (warn_ms < 0)
    return invalid_argument("the time until a report must be 0 (never) or positive, got " +
                            std::to_string(warn_ms) + " ms");
  config_.warn_ms = warn_ms;
  return {};
}

}  // namespace treering
