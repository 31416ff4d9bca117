// The reduction kernels against reduce_reference.hpp, on every instruction set that this CPU has.
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "reduce_util.hpp"

namespace treering {
namespace {

using reference::Operation;

constexpr RedOp kOps[] = {RedOp::kSum, RedOp::kProd, RedOp::kMin, RedOp::kMax};
constexpr std::size_t kLengths[] = {0,  1,  2,  3,  4,  5,  7,  8,   9,   13,  15, 16,
                                    17, 31, 32, 33, 63, 64, 65, 127, 129, 255, 300};

class Reduce : public testing::TestWithParam<int> {
 protected:
  const Type type_ = static_cast<Type>(GetParam());
  const Pool pool_{type_};
};

TEST_P(Reduce, OperatorsByInputsLengthsAndAlignments) {
  for (const RedOp op : kOps) {
    const Operation operation{type_, op};
    for (int n = 1; n <= kMaxInputs; ++n) {
      const auto expected = pool_.expected(operation, n);
      on_each_target([&] {
        std::size_t number = 0;
        for (const std::size_t elems : kLengths) {
          for (int turn = 0; turn < 4; ++turn, ++number) {
            Layout layout{n, 1 + turn % 3, elems, number};
            layout.streaming = number % 2 != 0 ? number % 8 : 0;
            layout.in_place = number % 3 == 0 ? static_cast<int>(number / 3) % n : -1;
            check_call(pool_, operation, layout, expected);
            if (HasFatalFailure()) return;
          }
        }
      });
    }
  }
}

TEST_P(Reduce, EveryAlignmentOfOutputAgainstEveryAlignmentOfInput) {
  const Operation operation{type_, RedOp::kSum};
  const auto expected = pool_.expected(operation, 2);
  constexpr std::size_t kElems = 141;  // several steps of the widest vector, and a rest
  const std::size_t size = pool_.element_bytes;
  on_each_target([&] {
    for (std::size_t out_offset = 0; out_offset < 64; out_offset += size) {
      for (std::size_t in_offset = 0; in_offset < 64; in_offset += size) {
        Guarded out(kElems * size, out_offset);
        Guarded in(kElems * size, in_offset);
        std::memcpy(in.data(), pool_.inputs[0].data(), kElems * size);
        const void* inputs[] = {in.data(), pool_.inputs[1].data()};
        void* outputs[] = {out.data()};
        ReduceArgs args;
        args.inputs = inputs;
        args.num_inputs = 2;
        args.outputs = outputs;
        args.num_outputs = 1;
        args.elems = kElems;
        args.type = type_;
        args.streaming_outputs = (in_offset / size) % 2;
        reduce(args);
        ASSERT_TRUE(out.holds(expected.data()) && out.guards_intact())
            << "output at " << out_offset << ", input at " << in_offset;
      }
    }
  });
}

TEST_P(Reduce, DivisorAndScaledInput) {
  std::size_t number = 0;
  for (const std::uint32_t divisor : {1u, 2u, 3u, 7u, 1000u, 4294967295u}) {
    for (const int scaled : {-1, 0, 1, 2, 4}) {
      if (scaled >= 0 && !is_float(type_)) continue;
      for (const RedOp op : {RedOp::kSum, RedOp::kMax}) {
        const Operation operation{type_, op, scaled, scaled % 2 == 0 ? 0.3 : -1.5, divisor};
        const int n = 1 + static_cast<int>(number) % kMaxInputs;
        const auto expected = pool_.expected(operation, n);
        on_each_target([&] {
          for (const std::size_t elems : {1, 3, 6, 40, 300, 900}) {
            Layout layout{n, 1 + static_cast<int>(number) % 2, elems, ++number};
            layout.streaming = number % 3;
            layout.in_place = static_cast<int>(number % 4) < n ? static_cast<int>(number % 4) : -1;
            check_call(pool_, operation, layout, expected);
            if (HasFatalFailure()) return;
          }
        });
      }
    }
  }
}

TEST_P(Reduce, Moves) {
  const Operation operation{type_, RedOp::kNone};
  on_each_target([&] {
    std::size_t number = 0;
    for (const std::size_t elems : kLengths) {
      for (int turn = 0; turn < 12; ++turn, ++number) {
        Layout layout{1, 1 + turn % 3, elems, number};
        layout.streaming = number % 8;
        layout.in_place = turn % 4 == 3 ? 0 : -1;
        check_call(pool_, operation, layout, pool_.inputs[0]);
        if (HasFatalFailure()) return;
      }
    }
  });
}

// Past every block, piece and cache of the implementation: the pool over and over.
TEST_P(Reduce, LongVectors) {
  constexpr std::size_t kElems = 300 * kPoolElems + 17;
  const std::size_t size = pool_.element_bytes;
  const auto repeated = [&](const std::vector<std::uint8_t>& pool) {
    std::vector<std::uint8_t> bytes;
    while (bytes.size() < kElems * size) bytes.insert(bytes.end(), pool.begin(), pool.end());
    return bytes;
  };
  const auto a = repeated(pool_.inputs[0]);
  const auto b = repeated(pool_.inputs[1]);
  const void* inputs[] = {a.data() + size, b.data() + size};
  for (const RedOp op : {RedOp::kSum, RedOp::kMin, RedOp::kNone}) {
    for (const std::uint32_t divisor : {1u, 3u}) {
      const Operation operation{type_, op, 0, 1.0, divisor};
      if (op != RedOp::kSum && divisor != 1) continue;
      const int n = op == RedOp::kNone ? 1 : 2;
      const auto expected = op == RedOp::kNone ? a : repeated(pool_.expected(operation, n));
      for (const std::uint64_t streaming : {0u, 1u, 3u}) {
        Guarded first((kElems - 1) * size, 3 * size % 64);
        Guarded second((kElems - 1) * size, 5 * size % 64);
        void* outputs[] = {first.data(), second.data()};
        ReduceArgs args;
        args.inputs = inputs;
        args.num_inputs = n;
        args.outputs = outputs;
        args.num_outputs = 2;
        args.elems = kElems - 1;
        args.type = type_;
        args.op = op;
        args.divisor = divisor;
        args.streaming_outputs = streaming;
        reduce(args);
        for (const Guarded* out : {&first, &second}) {
          ASSERT_TRUE(out->holds(expected.data() + size) && out->guards_intact())
              << red_op_name(op) << ", divisor " << divisor << ", streaming " << streaming;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Reduce, testing::Range(0, kNumTypes), [](const auto& param_info) {
  return std::string(type_name(static_cast<Type>(param_info.param)));
});

// Every code of a narrow type, alone and against partners that make sums round, overflow and
// cancel.
class ReduceNarrow : public testing::TestWithParam<Type> {};

TEST_P(ReduceNarrow, EveryCode) {
  const Type type = GetParam();
  const std::size_t size = type_bytes(type);
  const std::size_t codes = std::size_t{1} << (8 * size);
  std::vector<std::uint8_t> all(codes * size);
  for (std::size_t code = 0; code < codes; ++code) std::memcpy(&all[code * size], &code, size);
  std::mt19937_64 random(kSeed);
  for (const RedOp op : kOps) {
    const Operation operation{type, op};
    for (std::size_t trial = 0; trial < (size == 1 ? codes : 6); ++trial) {
      const int n = trial == 0 ? 1 : 2;
      const std::uint64_t partner = size == 1 ? trial : random_code(type, random);
      std::vector<std::uint8_t> second(all.size());
      std::vector<std::uint8_t> expected(all.size());
      for (std::size_t code = 0; code < codes; ++code) {
        std::memcpy(&second[code * size], &partner, size);
        std::uint64_t operands[] = {code, read_code(&second[code * size], size)};
        const std::uint64_t result = reference::fold(operation, {operands, operands + n});
        std::memcpy(&expected[code * size], &result, size);
      }
      const void* inputs[] = {all.data(), second.data()};
      on_each_target([&] {
        std::vector<std::uint8_t> result(all.size());
        void* outputs[] = {result.data()};
        ReduceArgs args;
        args.inputs = inputs;
        args.num_inputs = n;
        args.outputs = outputs;
        args.num_outputs = 1;
        args.elems = codes;
        args.type = type;
        args.op = op;
        reduce(args);
        for (std::size_t code = 0; code < codes; ++code) {
          ASSERT_EQ(read_code(&result[code * size], size), read_code(&expected[code * size], size))
              << red_op_name(op) << " of " << code << " and " << partner;
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ReduceNarrow,
                         testing::Values(Type::kFloat16, Type::kBfloat16, Type::kFloat8E4m3,
                                         Type::kFloat8E5m2),
                         [](const auto& param_info) {
                           return std::string(type_name(param_info.param));
                         });

}  // namespace
}  // namespace treering
