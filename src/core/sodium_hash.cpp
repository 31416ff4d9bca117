// The keyed hash of builds with libsodium.
#include <sodium.h>

#include "core/secret.hpp"

namespace treering {

static_assert(sizeof(Secret) == crypto_auth_KEYBYTES && sizeof(Secret) == crypto_auth_BYTES);

bool has_sodium() { return true; }
Status check_network_security() { return {}; }

// HMAC-SHA-512-256 needs none of what sodium_init prepares, which is the fastest code for other
// functions and libsodium's own random numbers.
Secret keyed_hash(const Secret& key, std::string_view message) {
  Secret hash;
  crypto_auth(hash.data(), reinterpret_cast<const unsigned char*>(message.data()), message.size(),
              key.data());
  return hash;
}

}  // namespace treering
