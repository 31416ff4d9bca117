// The data rule against definitions written again here: tables of all numbers of a format, folds in
// every order with a rounding after each step, and each operation as a loop over whole input
// vectors.
#include "perf/data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "perf/numbers.hpp"

namespace treering::perf {
namespace {

constexpr std::uint64_t kSeed = 20261130;

// ---- formats, by enumeration
// ---------------------------------------------------------------------

struct Format {
  tr_type_t type;
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
};
constexpr Format kFormats[] = {{TR_FLOAT16, 5, 10, true},
                               {TR_BFLOAT16, 8, 7, true},
                               {TR_FLOAT8_E4M3, 4, 3, false},
                               {TR_FLOAT8_E5M2, 5, 2, true}};

// The value of non-negative bits as the format's standard defines it.
double value_of(const Format& format, unsigned bits) {
  const int field = static_cast<int>(bits >> format.mantissa_bits);
  const int fraction = static_cast<int>(bits & ((1u << format.mantissa_bits) - 1));
  const int top = (1 << format.exponent_bits) - 1;
  const int bias = top / 2;
  if (format.has_infinity && field == top) {
    return fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (!format.has_infinity && bits == (1u << (format.exponent_bits + format.mantissa_bits)) - 1) {
    return std::nan("");
  }
  const double scaled = std::ldexp(fraction, -format.mantissa_bits);
  return field == 0 ? std::ldexp(scaled, 1 - bias) : std::ldexp(1 + scaled, field - bias);
}

// All finite non-negative numbers, ascending: their index is their bits.
std::vector<double> finite_numbers(const Format& format) {
  std::vector<double> out;
  for (unsigned bits = 0;; ++bits) {
    const double value = value_of(format, bits);
    if (!std::isfinite(value)) return out;
    out.push_back(value);
  }
}

template <class F>
unsigned bits_of(F value) {
  return value.bits;
}

template <class F>
void expect_conversions(const Format& format) {
  const std::vector<double> numbers = finite_numbers(format);
  const unsigned sign = 1u << (format.exponent_bits + format.mantissa_bits);
  for (unsigned bits = 0; bits < numbers.size(); ++bits) {
    using Storage = typename F::Storage;
    EXPECT_EQ(to_double(F{static_cast<Storage>(bits)}), numbers[bits]);
    EXPECT_EQ(to_double(F{static_cast<Storage>(bits | sign)}), -numbers[bits]);
    EXPECT_EQ(bits_of(from_double<F>(numbers[bits])), bits);
    EXPECT_EQ(bits_of(from_double<F>(-numbers[bits])), bits | sign);
    if (bits + 1 == numbers.size()) break;
    // Halfway goes to the even neighbour, a hair beside it to the nearer one.
    const double half = (numbers[bits] + numbers[bits + 1]) / 2;
    EXPECT_EQ(bits_of(from_double<F>(half)), bits + bits % 2);
    EXPECT_EQ(bits_of(from_double<F>(std::nextafter(half, 0.0))), bits);
    EXPECT_EQ(bits_of(from_double<F>(std::nextafter(half, 1e300))), bits + 1);
  }
  // Beyond the last finite number lies infinity, or e4m3's NaN; halfway to where the next number
  // would be goes to the even neighbour here too.
  const auto top = static_cast<unsigned>(numbers.size());
  const double half = numbers.back() + (numbers.back() - numbers[top - 2]) / 2;
  EXPECT_EQ(bits_of(from_double<F>(std::nextafter(half, 0.0))), top - 1);
  EXPECT_EQ(bits_of(from_double<F>(half)), top - 1 + (top - 1) % 2);
  EXPECT_EQ(bits_of(from_double<F>(std::nextafter(half, 1e300))), top);
  EXPECT_EQ(bits_of(from_double<F>(1e300)), top);
  EXPECT_TRUE(std::isnan(to_double(from_double<F>(std::nan("")))));
}

TEST(Numbers, ConversionsFollowTheFormats) {
  expect_conversions<Float16>(kFormats[0]);
  expect_conversions<Bfloat16>(kFormats[1]);
  expect_conversions<Float8E4m3>(kFormats[2]);
  expect_conversions<Float8E5m2>(kFormats[3]);
}

// ---- folds
// ---------------------------------------------------------------------------------------

template <class T>
T apply(RedOp redop, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    __extension__ using Wide = __int128;
    const Wide x = a, y = b;
    switch (redop) {
      case RedOp::kProd:
        return static_cast<T>(static_cast<unsigned __int128>(x) *
                              static_cast<unsigned __int128>(y));
      case RedOp::kMin:
        return a < b ? a : b;
      case RedOp::kMax:
        return a > b ? a : b;
      default:
        return static_cast<T>(x + y);
    }
  } else {
    const double x = to_double(a), y = to_double(b);
    switch (redop) {
      case RedOp::kProd:
        return from_double<T>(x * y);
      case RedOp::kMin:
        return x < y ? a : b;
      case RedOp::kMax:
        return x > y ? a : b;
      // Double holds the sum of two numbers of a narrower format exactly, so this rounds once; and
      // float64 itself is rounded by the addition.
      default:
        return from_double<T>(x + y);
    }
  }
}

template <class T>
std::vector<std::vector<T>> inputs_of(const Case& what, int ranks, Rules rules, bool specials) {
  const Pattern pattern(what, ranks, kSeed, rules, specials);
  std::vector<std::vector<T>> out(static_cast<std::size_t>(ranks),
                                  std::vector<T>(send_elems(what, ranks)));
  for (int rank = 0; rank < ranks; ++rank)
    pattern.fill(rank, out[static_cast<std::size_t>(rank)].data());
  return out;
}

template <class T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Folds in `order`, as a chain or as a tree of neighbours, rounding after every step.
template <class T>
T fold_in_order(const Case& what, const std::vector<std::vector<T>>& inputs, std::size_t elem,
                const std::vector<int>& order, bool as_tree) {
  std::vector<T> values;
  for (const int rank : order) {
    T value = inputs[static_cast<std::size_t>(rank)][elem];
    if constexpr (!std::is_integral_v<T>) {
      if (what.redop == RedOp::kPremulSum)
        value = from_double<T>(to_double(value) * premul_factor(rank));
    }
    values.push_back(value);
  }
  if (!as_tree) {
    return std::accumulate(values.begin() + 1, values.end(), values[0],
                           [&](T a, T b) { return apply(what.redop, a, b); });
  }
  while (values.size() > 1) {
    std::vector<T> next;
    for (std::size_t i = 0; i < values.size(); i += 2) {
      const bool is_last = i + 1 == values.size();
      next.push_back(is_last ? values[i] : apply(what.redop, values[i], values[i + 1]));
    }
    values = std::move(next);
  }
  return values[0];
}

class EveryOrder : public testing::TestWithParam<int> {};

TEST_P(EveryOrder, GivesTheSameBits) {
  std::mt19937_64 random(kSeed);
  const int ranks = GetParam();
  for (int type = 0; type < TR_NUM_TYPES; ++type) {
    for (const RedOp redop :
         {RedOp::kSum, RedOp::kProd, RedOp::kMin, RedOp::kMax, RedOp::kPremulSum}) {
      for (const Rules rules : {Rules::kCommon, Rules::kTreering}) {
        Case what;
        what.op = Op::kAllReduce;
        what.type = static_cast<tr_type_t>(type);
        what.redop = redop;
        what.count = 120;
        if (!is_defined(what.op, redop, what.type)) continue;
        SCOPED_TRACE(testing::Message() << type_name(what.type) << " " << red_op_name(redop));
        with_type(what.type, [&](auto tag) {
          using T = typename decltype(tag)::type;
          const auto inputs = inputs_of<T>(what, ranks, rules, false);
          std::vector<T> expected(what.count);
          Pattern(what, ranks, kSeed, rules, false).expect(0, expected.data());
          std::vector<int> order(static_cast<std::size_t>(ranks));
          std::iota(order.begin(), order.end(), 0);
          int different = 0;
          for (std::size_t i = 0; i < what.count; ++i) {
            for (int shuffle = 0; shuffle < 6; ++shuffle) {
              const T chain = fold_in_order(what, inputs, i, order, false);
              const T tree = fold_in_order(what, inputs, i, order, true);
              if (!same_bits(chain, expected[i]) || !same_bits(tree, expected[i])) ++different;
              std::shuffle(order.begin(), order.end(), random);
            }
          }
          EXPECT_EQ(different, 0);
          // And no rank's input is always the neutral element.
          const bool all_equal = std::all_of(expected.begin(), expected.end(), [&](T value) {
            return same_bits(value, expected[0]);
          });
          EXPECT_FALSE(all_equal);
        });
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, EveryOrder, testing::Values(1, 2, 3, 4, 7, 33));

TEST(Integers, NeverOverflowUnderCommonRules) {
  for (const RedOp redop : {RedOp::kSum, RedOp::kProd}) {
    for (const int ranks : {1, 2, 5, 200}) {
      Case what;
      what.type = TR_INT8;
      what.redop = redop;
      what.count = 500;
      const auto inputs = inputs_of<std::int8_t>(what, ranks, Rules::kCommon, false);
      for (std::size_t i = 0; i < what.count; ++i) {
        int positive = 0, negative = 0, product = 1;  // the extremes of all partial sums
        for (const auto& input : inputs) {
          (input[i] > 0 ? positive : negative) += input[i];
          product *= input[i];
        }
        if (redop == RedOp::kSum) {
          EXPECT_LE(positive, 127);
          EXPECT_GE(negative, -128);
        } else {
          EXPECT_LE(std::abs(product), 127);
        }
      }
    }
  }
}

// ---- average
// -------------------------------------------------------------------------------------

TEST(Average, OfIntegersIsTheWrappedSumTruncated) {
  Case what;
  what.type = TR_INT8;
  what.redop = RedOp::kAvg;
  what.count = 300;
  const int ranks = 3;
  const auto inputs = inputs_of<std::int8_t>(what, ranks, Rules::kTreering, false);
  std::vector<std::int8_t> expected(what.count);
  Pattern(what, ranks, kSeed, Rules::kTreering, false).expect(2, expected.data());
  for (std::size_t i = 0; i < what.count; ++i) {
    const auto sum = static_cast<std::int8_t>(inputs[0][i] + inputs[1][i] + inputs[2][i]);
    EXPECT_EQ(expected[i], sum / 3);
  }
}

TEST(Average, OfFloatsMayBeOneUnitOff) {
  Case what;
  what.redop = RedOp::kAvg;
  what.count = 1000;
  const int ranks = 3;
  const Pattern pattern(what, ranks, kSeed, Rules::kTreering, false);
  const auto inputs = inputs_of<float>(what, ranks, Rules::kTreering, false);
  std::vector<float> got(what.count);
  for (std::size_t i = 0; i < what.count; ++i) {
    got[i] = (inputs[0][i] + inputs[1][i] + inputs[2][i]) * (1.0f / 3.0f);
  }
  EXPECT_EQ(pattern.count_wrong(0, got.data()), 0u);
  pattern.expect(0, got.data());
  const auto step = [](float value, int times) {
    for (int i = 0; i < times; ++i) value = std::nextafter(value, 1e30f);
    return value;
  };
  got[10] = step(got[10], 1);
  EXPECT_EQ(pattern.count_wrong(0, got.data()), 0u);
  got[20] = step(got[20], 2);
  EXPECT_EQ(pattern.count_wrong(0, got.data()), 1u);
}

// ---- NaN, infinities, -0
// -------------------------------------------------------------------------

TEST(Specials, FollowTheRule) {
  const int ranks = 3;
  for (const RedOp redop : {RedOp::kSum, RedOp::kProd, RedOp::kMin, RedOp::kMax, RedOp::kAvg}) {
    Case what;
    what.redop = redop;
    what.count = 2000;
    SCOPED_TRACE(red_op_name(redop));
    const auto inputs = inputs_of<float>(what, ranks, Rules::kTreering, true);
    std::vector<float> expected(what.count);
    const Pattern pattern(what, ranks, kSeed, Rules::kTreering, true);
    pattern.expect(0, expected.data());
    int nans = 0, infinities = 0, negative_zeros = 0;
    for (std::size_t i = 0; i < what.count; ++i) {
      const float a = inputs[0][i], b = inputs[1][i], c = inputs[2][i];
      const bool any_nan = std::isnan(a) || std::isnan(b) || std::isnan(c);
      float want = 0;
      if (redop == RedOp::kSum) want = a + b + c;
      if (redop == RedOp::kAvg) want = static_cast<float>((double{a} + b + c) / 3);
      if (redop == RedOp::kProd) want = a * b * c;
      if (redop == RedOp::kMin || redop == RedOp::kMax) {
        // -0 < +0: order by value, then by sign.
        std::vector<float> sorted = {a, b, c};
        std::sort(sorted.begin(), sorted.end(), [](float x, float y) {
          return x < y || (x == y && std::signbit(x) && !std::signbit(y));
        });
        want = any_nan ? std::nanf("") : redop == RedOp::kMin ? sorted.front() : sorted.back();
      }
      EXPECT_TRUE(std::isnan(want) ? std::isnan(expected[i]) : same_bits(want, expected[i]))
          << a << " " << b << " " << c << ": " << expected[i];
      nans += std::isnan(expected[i]);
      infinities += std::isinf(expected[i]);
      negative_zeros += expected[i] == 0 && std::signbit(expected[i]);
    }
    EXPECT_GT(nans, 0);
    EXPECT_GT(infinities, 0);
    if (redop == RedOp::kSum || redop == RedOp::kMin) {
      EXPECT_GT(negative_zeros, 0);
    }
    EXPECT_EQ(pattern.count_wrong(0, expected.data()), 0u);
    // A library that drops NaN, as std::max may, is caught.
    for (float& value : expected) value = std::isnan(value) ? 0 : value;
    EXPECT_EQ(pattern.count_wrong(0, expected.data()), static_cast<std::uint64_t>(nans));
  }
}

TEST(Specials, CommonRulesLeaveNanAndZeroOutOfMinAndMax) {
  Case what;
  what.redop = RedOp::kMax;
  what.count = 2000;
  int infinities = 0;
  for (const auto& input : inputs_of<float>(what, 3, Rules::kCommon, true)) {
    for (const float value : input) {
      EXPECT_FALSE(std::isnan(value) || value == 0);
      infinities += std::isinf(value);
    }
  }
  EXPECT_GT(infinities, 0);
}

// ---- every operation as a loop over the inputs
// ---------------------------------------------------

TEST(Operations, MoveAndReduceTheRightElements) {
  for (int op_number = 0; op_number < kNumOps; ++op_number) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      Case what;
      what.op = static_cast<Op>(op_number);
      what.type = TR_INT32;
      what.root = ranks - 1;
      what.count = 5;
      SCOPED_TRACE(testing::Message() << op_name(what.op) << " of " << ranks);
      const auto in = inputs_of<std::int32_t>(what, ranks, Rules::kTreering, false);
      const auto sum = [&](int first, int last, std::size_t elem) {
        std::uint32_t out = 0;
        for (int r = first; r < last; ++r)
          out += static_cast<std::uint32_t>(in[static_cast<std::size_t>(r)][elem]);
        return static_cast<std::int32_t>(out);
      };
      const Pattern pattern(what, ranks, kSeed, Rules::kTreering, false);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto me = static_cast<std::size_t>(rank);
        const auto root = static_cast<std::size_t>(what.root);
        const std::size_t n = what.count;
        std::vector<std::int32_t> want;
        for (std::size_t i = 0; i < n; ++i) {
          switch (what.op) {
            case Op::kAllReduce:
              want.push_back(sum(0, ranks, i));
              break;
            case Op::kReduce:
              if (me == root) want.push_back(sum(0, ranks, i));
              break;
            case Op::kBroadcast:
              want.push_back(in[root][i]);
              break;
            case Op::kReduceScatter:
              want.push_back(sum(0, ranks, me * n + i));
              break;
            case Op::kScatter:
              want.push_back(in[root][me * n + i]);
              break;
            case Op::kScan:
              want.push_back(sum(0, rank + 1, i));
              break;
            case Op::kExscan:
              if (rank > 0) want.push_back(sum(0, rank, i));
              break;
            case Op::kSendRecv:
              want.push_back(in[(me + static_cast<std::size_t>(ranks) - 1) %
                                static_cast<std::size_t>(ranks)][i]);
              break;
            default:
              break;
          }
        }
        for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
          for (std::size_t i = 0; i < n; ++i) {
            if (what.op == Op::kAllGather || (what.op == Op::kGather && me == root))
              want.push_back(in[r][i]);
            if (what.op == Op::kAllToAll) want.push_back(in[r][me * n + i]);
          }
        }
        std::vector<std::int32_t> got(std::max<std::size_t>(recv_elems(what, ranks), 1), 0);
        pattern.expect(rank, got.data());
        std::uint64_t defined = 0;
        for (const Block& block : result_blocks(what, ranks, rank)) defined += block.elems;
        ASSERT_EQ(defined, want.size());
        got.resize(want.size());
        EXPECT_EQ(got, want);
        if (!want.empty()) {
          want[0] ^= 1;
          want.back() ^= 2;
          EXPECT_EQ(pattern.count_wrong(rank, want.data()), want.size() > 1 ? 2u : 1u);
        }
      }
    }
  }
}

TEST(Pattern, ChangesWithTheSeed) {
  Case what;
  what.count = 1000;
  std::vector<float> first(what.count), second(what.count);
  Pattern(what, 2, 1, Rules::kTreering, false).fill(0, first.data());
  Pattern(what, 2, 2, Rules::kTreering, false).fill(0, second.data());
  int equal = 0;
  for (std::size_t i = 0; i < what.count; ++i) equal += first[i] == second[i];
  EXPECT_LT(equal, 10);
}

}  // namespace
}  // namespace treering::perf
