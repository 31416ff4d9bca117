// The keyed hash of builds without libsodium.
#include <algorithm>

#include "core/key128.hpp"
#include "core/secret.hpp"

namespace treering {

bool has_sodium() { return false; }

Status check_network_security() {
  return unsupported(
      "this libtreering was built without libsodium, which links between hosts need to keep "
      "strangers out: install libsodium (Debian: libsodium-dev) and build again, or run all ranks "
      "on one host");
}

// Two hashes of SipHash-2-4-128 with the two halves of the key, each over the whole message.
Secret keyed_hash(const Secret& key, std::string_view message) {
  Secret hash;
  for (std::size_t half = 0; half < 2; ++half) {
    Key128 part;
    std::copy_n(key.begin() + static_cast<std::ptrdiff_t>(half * part.size()), part.size(),
                part.begin());
    const Key128 sip = siphash128(part, message.data(), message.size());
    std::copy(sip.begin(), sip.end(),
              hash.begin() + static_cast<std::ptrdiff_t>(half * sip.size()));
  }
  return hash;
}

}  // namespace treering
