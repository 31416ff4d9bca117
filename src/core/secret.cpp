#include "core/secret.hpp"

#include <cerrno>
#include <string>
#include <sys/random.h>

namespace treering {

Result<Secret> random_secret() {
  Secret secret;
  // Up to 256 bytes come whole or not at all; EINTR is possible only before the pool is ready at
  // boot.
  while (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    if (errno != EINTR) return system_error("cannot get random bytes for a key", errno);
  }
  return secret;
}

// What a handshake hashes begins with other words (core/handshake.cpp).
Secret derive_secret(const Secret& from, std::string_view purpose) {
  return keyed_hash(from, "treering key for " + std::string(purpose));
}

bool equal_in_constant_time(const Secret& a, const Secret& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace treering
