// TR_CHECKSUM: what a message was when it was posted. TCP's own 16 bits do not cover what happens
// in memory, and miss one damage in 65,536.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.hpp"
#include "transports/tcp/wire.hpp"

namespace treering::tcp {

// This build can; else kUnsupported, with what it lacks.
Status check_checksums();

// Of the payload and of the header's fields but the checksum.
std::uint32_t checksum_of(const Frame& frame, const std::byte* payload);

}  // namespace treering::tcp
