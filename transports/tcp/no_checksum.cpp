// Without xxHash.
#include "transports/tcp/checksum.hpp"

namespace treering::tcp {

Status check_checksums() {
  return unsupported(
      "TR_CHECKSUM=1, but this build of Treering was made without xxHash (libxxhash-dev)");
}

std::uint32_t checksum_of(const Frame&, const std::byte*) { return 0; }

}  // namespace treering::tcp
