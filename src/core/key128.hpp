// 128-bit keys, and the keyed hash that proves them.
#pragma once

#include <array>
#include <cstddef>

#include "core/status.hpp"

namespace treering {

using Key128 = std::array<unsigned char, 16>;

Result<Key128> random_key();

// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF",
// 2012). The store uses it to prove a key without sending it and, with a fixed key, as a checksum
// and to turn the name of a job into a key.
Key128 siphash128(const Key128& key, const void* data, std::size_t bytes);

// Takes the same time wherever the two differ.
bool equal_in_constant_time(const Key128& a, const Key128& b);

}  // namespace treering
