// The replay oracle against results worked out by hand or by the plainest loops.
#include "algos/oracle.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "algos/oracle_numbers.hpp"
#include "tests/algos/support.hpp"

namespace treering::algos {
namespace {

template <class Number>
float decoded(unsigned code) {
  std::byte bytes[Number::kBytes];
  std::memcpy(bytes, &code, Number::kBytes);  // little endian
  return Number::load(bytes);
}

template <class Number>
unsigned encoded(float value) {
  std::byte bytes[Number::kBytes];
  Number::store(bytes, value);
  unsigned code = 0;
  std::memcpy(&code, bytes, Number::kBytes);
  return code;
}

// Every number of the format survives; between two neighbours the nearer one is taken, in the
// middle the even.
template <class Number>
void check_format(unsigned codes, unsigned largest, unsigned quiet_nan) {
  const unsigned sign = codes / 2;
  for (unsigned code = 0; code < codes; ++code) {
    const float value = decoded<Number>(code);
    ASSERT_EQ(encoded<Number>(value), std::isnan(value) ? quiet_nan : code);
  }
  for (unsigned low = 0; low < largest; ++low) {
    const float a = decoded<Number>(low), b = decoded<Number>(low + 1);
    ASSERT_LT(a, b);
    const float middle = (a + b) / 2;
    ASSERT_EQ(encoded<Number>(middle), low % 2 == 0 ? low : low + 1);
    ASSERT_EQ(encoded<Number>(-middle), sign + (low % 2 == 0 ? low : low + 1));
    ASSERT_EQ(encoded<Number>(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(encoded<Number>(std::nextafter(middle, b)), low + 1);
  }
}

TEST(OracleNumbers, Formats) {
  check_format<OracleFloat16>(1 << 16, 0x7bff, 0x7e00);
  check_format<OracleFloat8E4m3>(1 << 8, 0x7e, 0x7f);
  check_format<OracleFloat8E5m2>(1 << 8, 0x7b, 0x7e);
  EXPECT_EQ(decoded<OracleFloat16>(0x3c00), 1.0f);
  EXPECT_EQ(decoded<OracleFloat16>(0x7bff), 65504.0f);
  EXPECT_EQ(decoded<OracleFloat16>(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(decoded<OracleFloat8E4m3>(0x7e), 448.0f);
  EXPECT_EQ(decoded<OracleFloat8E4m3>(0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(decoded<OracleFloat8E5m2>(0x7b), 57344.0f);
  EXPECT_EQ(decoded<OracleFloat8E5m2>(0x01), std::ldexp(1.0f, -16));
}

// bfloat16 is the upper half of a float32.
TEST(OracleNumbers, Bfloat16) {
  for (unsigned code = 0; code < 1u << 16; ++code) {
    const unsigned bits = code << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(decoded<OracleBfloat16>(code)));
      ASSERT_EQ(encoded<OracleBfloat16>(value), 0x7fc0u);
      continue;
    }
    ASSERT_EQ(decoded<OracleBfloat16>(code), value);
    ASSERT_EQ(encoded<OracleBfloat16>(value), code);
    if (std::isinf(value)) continue;
    // A quarter, a half and three quarters of the way to the next code.
    const auto between = [&](unsigned low_bits) {
      const unsigned all = bits + low_bits;
      float f;
      std::memcpy(&f, &all, sizeof f);
      return encoded<OracleBfloat16>(f);
    };
    ASSERT_EQ(between(0x4000), code);
    ASSERT_EQ(between(0x8000), code + code % 2);
    ASSERT_EQ(between(0xc000), code + 1);
  }
}

TEST(OracleNumbers, Overflow) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(encoded<OracleFloat16>(65519.0f), 0x7bffu);
  EXPECT_EQ(encoded<OracleFloat16>(65520.0f), 0x7c00u);
  EXPECT_EQ(encoded<OracleFloat16>(-1e30f), 0xfc00u);
  EXPECT_EQ(encoded<OracleFloat8E5m2>(61439.0f), 0x7bu);
  EXPECT_EQ(encoded<OracleFloat8E5m2>(61440.0f), 0x7cu);
  EXPECT_EQ(encoded<OracleFloat8E4m3>(464.0f), 0x7eu);
  EXPECT_EQ(encoded<OracleFloat8E4m3>(464.1f), 0x7fu);
  EXPECT_EQ(encoded<OracleFloat8E4m3>(-infinity), 0x7fu);
  EXPECT_EQ(encoded<OracleBfloat16>(std::numeric_limits<float>::max()), 0x7f80u);
}

TEST(OracleNumbers, Operators) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(combine_numbers(RedOp::kMin, nan, 1.0f)));
  EXPECT_TRUE(std::isnan(combine_numbers(RedOp::kMax, 1.0f, nan)));
  EXPECT_TRUE(std::signbit(combine_numbers(RedOp::kMin, 0.0f, -0.0f)));
  EXPECT_TRUE(std::signbit(combine_numbers(RedOp::kMin, -0.0f, 0.0f)));
  EXPECT_FALSE(std::signbit(combine_numbers(RedOp::kMax, 0.0f, -0.0f)));
  EXPECT_FALSE(std::signbit(combine_numbers(RedOp::kMax, -0.0f, 0.0f)));
  EXPECT_EQ(combine_numbers<std::int8_t>(RedOp::kSum, 100, 100), -56);
  EXPECT_EQ(combine_numbers<std::int64_t>(RedOp::kProd, INT64_MAX, 2), -2);
  EXPECT_EQ(divide_number<std::int32_t>(-7, 2), -3);
  EXPECT_EQ(divide_number<std::uint8_t>(200, 3), 66);
}

Oracle oracle_of(Collective collective, const char* name, int size, int root = 0) {
  Result<Oracle> oracle = Oracle::make(make_program(*find_algorithm(collective, name), size, root));
  EXPECT_TRUE(oracle.ok()) << oracle.status().message();
  return std::move(oracle).value();
}

template <class T>
std::vector<T> evaluated(const Oracle& oracle, Expr e, const OracleCall& call,
                         const std::vector<std::vector<T>>& inputs) {
  const auto leaf = [&](int rank, int) {
    return reinterpret_cast<const std::byte*>(inputs[rank].data());
  };
  const std::vector<std::byte> bytes = oracle.evaluate(e, call, leaf, inputs.front().size());
  std::vector<T> values(inputs.front().size());
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Oracle, RefusesAnIncorrectProgram) {
  Program program = make_program(*find_algorithm(Collective::kAllReduce, "ring"), 4);
  program.ranks[2].steps.pop_back();
  EXPECT_FALSE(Oracle::make(program).ok());
}

TEST(Oracle, GroupsAsTheAlgorithmDoes) {
  const Oracle ring = oracle_of(Collective::kAllReduce, "ring", 4);
  EXPECT_EQ(ring.expressions().text(ring.out(3, 0)), "[0+((1+2)+3)] of chunk 0");
  EXPECT_EQ(ring.expressions().text(ring.out(0, 2)), "[((0+3)+1)+2] of chunk 2");
  const Oracle halving = oracle_of(Collective::kAllReduce, "halving_doubling", 6);
  EXPECT_EQ(halving.expressions().text(halving.out(5, 1)), "[((0+1)+(2+3))+(4+5)] of chunk 1");
  // 2^24 + 1 is not a float32: whoever adds the ones first keeps them.
  const std::vector<std::vector<float>> inputs = {{16777216.0f}, {1.0f}, {1.0f}, {-16777216.0f}};
  const OracleCall call;
  EXPECT_EQ(evaluated(ring, ring.out(0, 0), call, inputs), std::vector<float>{2.0f});
  EXPECT_EQ(evaluated(ring, ring.out(0, 2), call, inputs), std::vector<float>{2.0f});
  EXPECT_EQ(ring.expressions().text(ring.out(0, 3)), "[((0+1)+2)+3] of chunk 3");
  EXPECT_EQ(evaluated(ring, ring.out(0, 3), call, inputs), std::vector<float>{0.0f});
  const Oracle direct = oracle_of(Collective::kAllReduce, "two_shot", 4);
  EXPECT_EQ(direct.expressions().text(direct.out(1, 1)), "[0+1+2+3] of chunk 1");
  EXPECT_EQ(evaluated(direct, direct.out(0, 0), call, inputs), std::vector<float>{0.0f});
}

// bfloat16 has 8 significant bits: 256 + 1 is rounded to 256 between folds, not within one.
TEST(Oracle, RoundsOncePerFold) {
  const std::vector<std::vector<std::uint16_t>> inputs = {
      {0x4380}, {0x3f80}, {0x3f80}};  // 256, 1, 1
  OracleCall call;
  call.type = Type::kBfloat16;
  const Oracle flat = oracle_of(Collective::kAllReduce, "one_shot", 3);
  EXPECT_EQ(evaluated(flat, flat.out(0, 0), call, inputs), std::vector<std::uint16_t>{0x4381});
  const Oracle chain = oracle_of(Collective::kReduce, "chain", 3, 2);
  EXPECT_EQ(evaluated(chain, chain.out(2, 0), call, inputs), std::vector<std::uint16_t>{0x4380});
  // The factor's product is rounded before the fold, the average after it.
  call.scales = {1.0, 1.0 / 3, 1.0};
  call.divisor = 3;
  const float third = decoded<OracleBfloat16>(encoded<OracleBfloat16>(1.0f / 3));
  const unsigned expected = encoded<OracleBfloat16>((256.0f + third + 1.0f) * (1.0f / 3));
  EXPECT_EQ(evaluated(flat, flat.out(0, 0), call, inputs)[0], expected);
}

TEST(Oracle, AppliesAUserOperatorInOrder) {
  OracleCall call;
  call.type = Type::kInt32;
  call.op = RedOp::kUser;
  // acc * 10 + in: neither commutative nor associative, so it shows the grouping.
  call.combine = [](void* acc, const void* in, std::size_t count, int type, void* user) {
    EXPECT_EQ(type, static_cast<int>(Type::kInt32));
    ++*static_cast<int*>(user);
    for (std::size_t i = 0; i < count; ++i) {
      auto* a = static_cast<std::int32_t*>(acc) + i;
      *a = *a * 10 + static_cast<const std::int32_t*>(in)[i];
    }
  };
  int calls = 0;
  call.user = &calls;
  const std::vector<std::vector<std::int32_t>> inputs = {{1}, {2}, {3}, {4}};
  const Oracle scan = oracle_of(Collective::kScan, "direct", 4);
  EXPECT_EQ(evaluated(scan, scan.out(3, 0), call, inputs), std::vector<std::int32_t>{1234});
  EXPECT_EQ(calls, 3);
  const Oracle halving = oracle_of(Collective::kAllReduce, "recursive_doubling", 4);
  // (1 op 2) op (3 op 4)
  EXPECT_EQ(evaluated(halving, halving.out(2, 0), call, inputs), std::vector<std::int32_t>{154});
}

// Whole vectors of integers through every algorithm, against loops over the definition of the
// collective.
class OracleVectors : public EachAlgorithm {};

TEST_P(OracleVectors, EqualTheDefinition) {
  const Algorithm& a = GetParam();
  constexpr unsigned kSeed = 20240;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  for (int n = 1; n <= 7; ++n) {
    if (!a.supports(n)) continue;
    const int root = n / 2, chunks = a.chunks(n);
    SCOPED_TRACE(where(n, root, false));
    // Chunk c has c + 1 elements wherever it is (2 each where parts of different ranks meet).
    const auto elems = [&](int c) { return a.collective == Collective::kAllToAll ? 2 : c + 1; };
    const auto part = [&](int, int c) {
      OraclePart p;
      for (int i = 0; i < c; ++i) p.offset += elems(i);
      p.elems = elems(c);
      return p;
    };
    const std::uint64_t total = part(0, chunks - 1).offset + part(0, chunks - 1).elems;
    std::vector<std::vector<std::int32_t>> in(n), out(n);
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (int r = 0; r < n; ++r) {
      for (std::uint64_t i = 0; i < total; ++i)
        in[r].push_back(static_cast<std::int32_t>(random()));
      out[r].assign(total, -1);
      inputs.push_back(reinterpret_cast<const std::byte*>(in[r].data()));
      outputs.push_back(reinterpret_cast<std::byte*>(out[r].data()));
    }
    OracleCall call;
    call.type = Type::kInt32;
    const Oracle oracle = oracle_of(a.collective, a.name, n, root);
    oracle.apply(call, inputs, part, outputs, part);

    for (int r = 0; r < n; ++r) {
      for (int c = 0; c < chunks; ++c) {
        for (int i = 0; i < elems(c); ++i) {
          const std::uint64_t at = part(r, c).offset + i;
          const auto sum = [&](int end) {
            std::uint32_t total_bits = 0;
            for (int q = 0; q < end; ++q) total_bits += static_cast<std::uint32_t>(in[q][at]);
            return static_cast<std::int32_t>(total_bits);
          };
          std::int32_t expected = -1;
          switch (a.collective) {
            case Collective::kAllReduce:
              expected = sum(n);
              break;
            case Collective::kReduce:
              if (r == root) expected = sum(n);
              break;
            case Collective::kReduceScatter:
              if (c == r) expected = sum(n);
              break;
            case Collective::kScan:
              expected = sum(r + 1);
              break;
            case Collective::kExscan:
              if (r > 0) expected = sum(r);
              break;
            case Collective::kBroadcast:
              expected = in[root][at];
              break;
            case Collective::kScatter:
              if (c == r) expected = in[root][at];
              break;
            case Collective::kAllGather:
              expected = in[c][at];
              break;
            case Collective::kGather:
              if (r == root) expected = in[c][at];
              break;
            case Collective::kAllToAll:
              expected = in[c][part(c, r).offset + i];
              break;
            default:
              break;
          }
          ASSERT_EQ(out[r][at], expected) << "rank " << r << " chunk " << c << " element " << i;
        }
      }
    }
  }
}

std::vector<Algorithm> with_a_result() {
  std::vector<Algorithm> algorithms;
  for (const Algorithm& a : flat_algorithms()) {
    if (a.collective != Collective::kBarrier) algorithms.push_back(a);
  }
  return algorithms;
}

INSTANTIATE_TEST_SUITE_P(, OracleVectors, ::testing::ValuesIn(with_a_result()),
                         algorithm_test_name);

}  // namespace
}  // namespace treering::algos
