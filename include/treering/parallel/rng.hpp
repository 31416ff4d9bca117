// Random numbers by position instead of by order: value = hash(seed, stream, index).
//
// A generator with a state gives other numbers to whoever draws in another order, so that two
// layouts would start from different weights. Here element `index` of parameter `stream` is the
// same number wherever and whenever it is computed: a shard fills itself without communication.
//
// The hash is the output function of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014), applied once per key part.
#pragma once

#include <cstdint>

namespace tr::par {

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
constexpr double random_symmetric(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto high = static_cast<std::int32_t>(random_bits(seed, stream, index) >> 40);
  return (high - (1 << 23)) * (1.0 / (1 << 23));
}

// Streams, so that no two uses share numbers.
constexpr std::uint64_t parameter_stream(int parameter) {
  return static_cast<std::uint64_t>(parameter);
}
constexpr std::uint64_t dropout_stream(int layer, std::uint64_t step) {
  return (std::uint64_t{1} << 32) + mix(static_cast<std::uint64_t>(layer)) + step;
}
constexpr std::uint64_t shuffle_stream(int epoch) {
  return (std::uint64_t{1} << 33) + static_cast<std::uint64_t>(epoch);
}
inline constexpr std::uint64_t kInputStream = std::uint64_t{1} << 34;
inline constexpr std::uint64_t kSplitStream = kInputStream + 1;

}  // namespace tr::par
