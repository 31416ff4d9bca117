// How long the backends of other libraries wait, as Treering's own does.
#pragma once

#include <chrono>
#include <cstdlib>

namespace treering::peers {

// TR_TIMEOUT_S, or its default; 0, which means never there, is a day here.
inline std::chrono::milliseconds comm_deadline() {
  constexpr double kDefaultS = 300.0, kNeverS = 86'400.0;
  const char* const text = std::getenv("TR_TIMEOUT_S");
  const double seconds = text != nullptr && *text != '\0' ? std::strtod(text, nullptr) : kDefaultS;
  return std::chrono::milliseconds(
      static_cast<long long>(1000.0 * (seconds > 0.0 ? seconds : kNeverS)));
}

}  // namespace treering::peers
