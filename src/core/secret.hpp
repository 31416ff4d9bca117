// What the library knows of cryptography: 256-bit keys, one keyed hash, random bytes.
//
// With libsodium (the build looks for it) the hash is HMAC-SHA-512-256. Without it, it is SipHash
// (core/key128.hpp), whose 128 bits are enough to keep other jobs of a machine apart, and links
// between hosts are refused: has_sodium() says which build this is. Any thread may call.
#pragma once

#include <array>
#include <string_view>

#include "core/status.hpp"

namespace treering {

using Secret = std::array<unsigned char, 32>;

// False: built without libsodium.
bool has_sodium();
// Why this build makes no connections between hosts, and what to do; ok if it does.
Status check_network_security();

// From the system's generator.
Result<Secret> random_secret();

// The keyed hash of `message`. Nobody without the key can tell it from random bytes.
Secret keyed_hash(const Secret& key, std::string_view message);

// A key for one purpose: whoever has it learns nothing about `from` or about other purposes' keys.
Secret derive_secret(const Secret& from, std::string_view purpose);

// Takes the same time wherever the two differ.
bool equal_in_constant_time(const Secret& a, const Secret& b);

}  // namespace treering
