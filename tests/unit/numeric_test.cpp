// The scalar conversions against the formats' definitions: every code, every midpoint between two
// codes.
#include "core/numeric.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "reduce_reference.hpp"

namespace treering {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Usable at compile time.
static_assert(float16_from_float32(1.0f) == 0x3c00 && float32_from_float16(0xc000) == -2.0f);
static_assert(bfloat16_from_float32(-2.0f) == 0xc000 && float32_from_bfloat16(0x3f80) == 1.0f);
static_assert(float8_e4m3_from_float32(1.0f) == 0x38 && float32_from_float8_e4m3(0xc0) == -2.0f);
static_assert(float8_e5m2_from_float32(1.0f) == 0x3c && float32_from_float8_e5m2(0xc0) == -2.0f);

struct Conversion {
  const char* name;
  Type type;
  std::uint32_t codes;
  float (*widen)(std::uint32_t);
  std::uint32_t (*narrow)(float);
};

const Conversion kConversions[] = {
    {"float16", Type::kFloat16, 1 << 16,
     [](std::uint32_t code) { return float32_from_float16(static_cast<std::uint16_t>(code)); },
     [](float value) -> std::uint32_t { return float16_from_float32(value); }},
    {"bfloat16", Type::kBfloat16, 1 << 16,
     [](std::uint32_t code) { return float32_from_bfloat16(static_cast<std::uint16_t>(code)); },
     [](float value) -> std::uint32_t { return bfloat16_from_float32(value); }},
    {"float8_e4m3", Type::kFloat8E4m3, 1 << 8,
     [](std::uint32_t code) { return float32_from_float8_e4m3(static_cast<std::uint8_t>(code)); },
     [](float value) -> std::uint32_t { return float8_e4m3_from_float32(value); }},
    {"float8_e5m2", Type::kFloat8E5m2, 1 << 8,
     [](std::uint32_t code) { return float32_from_float8_e5m2(static_cast<std::uint8_t>(code)); },
     [](float value) -> std::uint32_t { return float8_e5m2_from_float32(value); }},
};

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

class Numeric : public testing::TestWithParam<Conversion> {};

TEST_P(Numeric, EveryCodeWidensToItsValueAndBack) {
  const Conversion& conversion = GetParam();
  for (std::uint32_t code = 0; code < conversion.codes; ++code) {
    const double expected = reference::decode(conversion.type, code);
    const float widened = conversion.widen(code);
    if (std::isnan(expected)) {
      ASSERT_EQ(bits_of(widened), 0x7fc00000u) << code;
      ASSERT_EQ(conversion.narrow(widened), reference::format_of(conversion.type).quiet_nan);
    } else {
      ASSERT_EQ(bits_of(widened), bits_of(static_cast<float>(expected))) << code;
      ASSERT_EQ(static_cast<double>(widened), expected) << code;
      ASSERT_EQ(conversion.narrow(widened), code);
    }
  }
}

TEST_P(Numeric, MidpointsGoToTheEvenCode) {
  const Conversion& conversion = GetParam();
  const reference::Format format = reference::format_of(conversion.type);
  const auto sign = static_cast<std::uint32_t>(format.sign());
  for (std::uint32_t code = 0; code <= format.finite_max; ++code) {
    const double sum =
        reference::magnitude_value(format, code) + reference::magnitude_value(format, code + 1);
    const auto middle = static_cast<float>(sum / 2);
    ASSERT_EQ(static_cast<double>(middle), sum / 2);
    const auto above =
        static_cast<std::uint32_t>(code == format.finite_max ? format.overflow : code + 1);
    const std::uint32_t even = code % 2 == 0 ? code : above;
    const std::uint32_t above_sign = above == format.quiet_nan ? 0 : sign;
    ASSERT_EQ(conversion.narrow(middle), even);
    ASSERT_EQ(conversion.narrow(-middle), sign | even);
    ASSERT_EQ(conversion.narrow(std::nextafter(middle, 0.0f)), code);
    ASSERT_EQ(conversion.narrow(-std::nextafter(middle, 0.0f)), sign | code);
    ASSERT_EQ(conversion.narrow(std::nextafter(middle, kInfinity)), above);
    ASSERT_EQ(conversion.narrow(-std::nextafter(middle, kInfinity)), above_sign | above);
  }
}

TEST_P(Numeric, AnyFloat32RoundsToTheNearestCode) {
  const Conversion& conversion = GetParam();
  constexpr unsigned kSeed = 20240229;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int i = 0; i < 100000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const double exact = std::isnan(value) ? kNan : static_cast<double>(value);
    ASSERT_EQ(conversion.narrow(value), reference::encode(conversion.type, exact))
        << bits_of(value);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Numeric, testing::ValuesIn(kConversions),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(NumericEdges, AsPublished) {
  EXPECT_EQ(float16_from_float32(65504.0f), 0x7bff);
  EXPECT_EQ(float16_from_float32(65519.996f), 0x7bff);
  EXPECT_EQ(float16_from_float32(65520.0f), 0x7c00);
  EXPECT_EQ(float16_from_float32(-kInfinity), 0xfc00);
  EXPECT_EQ(float16_from_float32(5.9604645e-8f), 0x0001);
  EXPECT_EQ(float16_from_float32(-0.0f), 0x8000);

  EXPECT_EQ(bfloat16_from_float32(3.3895314e38f), 0x7f7f);
  EXPECT_EQ(bfloat16_from_float32(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bfloat16_from_float32(1.00390625f), 0x3f80);  // half way: to even
  EXPECT_EQ(bfloat16_from_float32(1.01171875f), 0x3f82);

  EXPECT_EQ(float8_e4m3_from_float32(448.0f), 0x7e);
  EXPECT_EQ(float8_e4m3_from_float32(464.0f), 0x7e);
  EXPECT_EQ(float8_e4m3_from_float32(464.00003f), 0x7f);
  EXPECT_EQ(float8_e4m3_from_float32(-480.0f), 0x7f);
  EXPECT_EQ(float8_e4m3_from_float32(kInfinity), 0x7f);
  EXPECT_EQ(float8_e4m3_from_float32(0.001953125f), 0x01);
  EXPECT_EQ(float8_e4m3_from_float32(-0.0009765625f), 0x80);

  EXPECT_EQ(float8_e5m2_from_float32(57344.0f), 0x7b);
  EXPECT_EQ(float8_e5m2_from_float32(61439.996f), 0x7b);
  EXPECT_EQ(float8_e5m2_from_float32(61440.0f), 0x7c);
  EXPECT_EQ(float8_e5m2_from_float32(1.5258789e-5f), 0x01);
}

TEST(NumericEdges, ANanIsQuietAndPositive) {
  for (const std::uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_EQ(float16_from_float32(nan), 0x7e00);
    EXPECT_EQ(bfloat16_from_float32(nan), 0x7fc0);
    EXPECT_EQ(float8_e4m3_from_float32(nan), 0x7f);
    EXPECT_EQ(float8_e5m2_from_float32(nan), 0x7e);
  }
}

}  // namespace
}  // namespace treering
