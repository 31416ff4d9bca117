// Conversions of the 16-bit floats, against the compiler's own and against a definition by search.
#include "parallel/number.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>

#include "treering/parallel/rng.hpp"

namespace {

using tr::BFloat16;
using tr::Float16;

TEST(Number, EveryFloat16WidensAsTheCompilerSays) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const auto expected = static_cast<float>(std::bit_cast<_Float16>(bits));
    const float actual = tr::par::widen(Float16{bits});
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << code;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(actual), std::bit_cast<std::uint32_t>(expected))
          << code;
    }
  }
}

// Every float16, the midpoint to the next, and their neighbours.
TEST(Number, Float16RoundsAsTheCompilerSays) {
  const auto check = [](float x) {
    const auto expected = std::bit_cast<std::uint16_t>(static_cast<_Float16>(x));
    ASSERT_EQ(tr::par::narrow<Float16>(x).bits, expected) << x;
  };
  for (std::uint32_t code = 0; code < 0x7c00; ++code) {
    const float here = tr::par::widen(Float16{static_cast<std::uint16_t>(code)});
    const float next =
        code == 0x7bff ? 65536.0f : tr::par::widen(Float16{static_cast<std::uint16_t>(code + 1)});
    const float middle = (here + next) / 2;
    for (const float x :
         {here, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      check(x);
      check(-x);
    }
  }
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const auto bits = static_cast<std::uint32_t>(tr::par::random_bits(1, 2, i));
    if (!std::isnan(std::bit_cast<float>(bits))) check(std::bit_cast<float>(bits));
  }
  EXPECT_EQ(tr::par::narrow<Float16>(std::nanf("")).bits, 0x7e00);
}

TEST(Number, BFloat16IsTheNearestTiesToEven) {
  for (std::uint64_t i = 0; i < 100000; ++i) {
    auto bits = static_cast<std::uint32_t>(tr::par::random_bits(3, 4, i));
    if (i % 4 == 0) bits = (bits & 0xffff0000u) | 0x8000u;  // a tie
    const float x = std::bit_cast<float>(bits);
    if (!std::isfinite(x) || std::abs(x) > 3e38f) continue;
    // The two candidates are x with its low half cut off, and the next one away from zero.
    const std::uint32_t low = bits & 0xffff0000u, high = low + 0x10000u;
    const double down = std::abs(static_cast<double>(x) - std::bit_cast<float>(low));
    const double up = std::abs(static_cast<double>(x) - std::bit_cast<float>(high));
    const bool take_low = down < up || (down == up && (low >> 16) % 2 == 0);
    ASSERT_EQ(tr::par::narrow<BFloat16>(x).bits, (take_low ? low : high) >> 16) << x;
    ASSERT_EQ(tr::par::widen(BFloat16{static_cast<std::uint16_t>(low >> 16)}),
              std::bit_cast<float>(low));
  }
  EXPECT_EQ(tr::par::narrow<BFloat16>(3.4e38f).bits, 0x7f80);  // infinity
  EXPECT_EQ(tr::par::narrow<BFloat16>(std::nanf("")).bits, 0x7fc0);
}

}  // namespace
