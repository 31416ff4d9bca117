#include "core/key128.hpp"

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/random.h>

namespace treering {
namespace {

static_assert(std::endian::native == std::endian::little, "SipHash reads little-endian words");

std::uint64_t load(const unsigned char* from) {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

struct State {
  std::uint64_t v0, v1, v2, v3;

  void rounds(int n) {
    for (int i = 0; i < n; ++i) {
      v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
    }
  }
  void absorb(std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
};

}  // namespace

Result<Key128> random_key() {
  Key128 key;
  // Up to 256 bytes come whole or not at all; EINTR is possible only before the pool is ready at
  // boot.
  while (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    if (errno != EINTR) return system_error("cannot get random bytes for a key", errno);
  }
  return key;
}

Key128 siphash128(const Key128& key, const void* data, std::size_t bytes) {
  const std::uint64_t k0 = load(key.data());
  const std::uint64_t k1 = load(key.data() + 8);
  State s{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261,
          k1 ^ 0x7465646279746573};

  const auto* in = static_cast<const unsigned char*>(data);
  const std::size_t tail = bytes % 8;
  for (std::size_t i = 0; i + 8 <= bytes; i += 8) s.absorb(load(in + i));
  unsigned char last[8] = {};
  if (tail > 0) std::memcpy(last, in + bytes - tail, tail);
  last[7] = static_cast<unsigned char>(bytes);
  s.absorb(load(last));

  s.v2 ^= 0xee;
  s.rounds(4);
  const std::uint64_t low = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
  s.v1 ^= 0xdd;
  s.rounds(4);
  const std::uint64_t high = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;

  Key128 out;
  std::memcpy(out.data(), &low, 8);
  std::memcpy(out.data() + 8, &high, 8);
  return out;
}

bool equal_in_constant_time(const Key128& a, const Key128& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace treering
