// Numbers that stand for texts and bytes: equal ones for equal ones, and almost surely only then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "treering/parallel/rng.hpp"

namespace tr::par {

// Eight bytes at a time.
inline std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = mix(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<std::size_t>(8, bytes.size() - i));
    hash = mix(hash ^ word);
  }
  return hash;
}

// 52 bits of it, which a double holds: what ranks exchange to see whether they have the same.
inline double digest_of(std::string_view text) { return static_cast<double>(hash_of(text) >> 12); }

}  // namespace tr::par
