// How long the backends of other libraries wait, as Treering's own does.
#pragma once

#include <chrono>
#include <cstdlib>

namespace treering::peers {

// TR_TIMEOUT_S, or its default.
inline std::chrono::milliseconds comm_deadline() {
  constexpr double kDefaultS = 600.0;
  const char* const text = std::getenv("TR_TIMEOUT_S");
  const double seconds = text != nullptr ? std::strtod(text, nullptr) : 0.0;
  return std::chrono::milliseconds(
      static_cast<long long>(1000.0 * (seconds > 0.0 ? seconds : kDefaultS)));
}

}  // namespace treering::peers
