#include "transports/tcp/checksum.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace treering::tcp {

Status check_checksums() { return {}; }

std::uint32_t checksum_of(const Frame& frame, const std::byte* payload) {
  Frame head = frame;
  head.checksum = 0;
  const XXH64_hash_t seed = XXH3_64bits(&head, sizeof head);
  return static_cast<std::uint32_t>(XXH3_64bits_withSeed(payload, frame.bytes, seed));
}

}  // namespace treering::tcp
