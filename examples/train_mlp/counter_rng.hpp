// Random numbers by position instead of by order: value = hash(seed, stream, index).
//
// A generator with a state gives other numbers to whoever draws in another order, so that two
// ranks, or a run with another number of ranks, start from different weights. Here element `index`
// of parameter `stream` is the same number wherever and whenever it is computed.
//
// The hash is the output function of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014), applied once per key part.
#pragma once

#include <cstdint>

namespace train {

constexpr std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return mix(mix(mix(seed) ^ stream) ^ index);
}

// In [-1, 1): 24 bits, exact in a float.
constexpr float random_symmetric(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto high = static_cast<std::int32_t>(random_bits(seed, stream, index) >> 40);
  return static_cast<float>(high - (1 << 23)) * (1.0f / (1 << 23));
}

// Streams: layers take 2 l (weights) and 2 l + 1 (bias).
inline constexpr std::uint64_t kInputStream = 1u << 20;
inline constexpr std::uint64_t kSplitStream = kInputStream + 1;
inline constexpr std::uint64_t kShuffleStream = 1u << 21;  // + epoch

}  // namespace train
