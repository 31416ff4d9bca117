// reduce() with a caller's operator, and with more inputs and outputs than a bit mask holds.
#include <cstring>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "reduce_util.hpp"

namespace treering {
namespace {

// An element is a 2x2 matrix of 16-bit integers; the product does not commute.
std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  const auto at = [](std::uint64_t matrix, int row, int column) {
    return (matrix >> (16 * (2 * row + column))) & 0xffff;
  };
  std::uint64_t result = 0;
  for (int row = 0; row < 2; ++row) {
    for (int column = 0; column < 2; ++column) {
      const std::uint64_t entry =
          at(a, row, 0) * at(b, 0, column) + at(a, row, 1) * at(b, 1, column);
      result |= (entry & 0xffff) << (16 * (2 * row + column));
    }
  }
  return result;
}

struct Calls {
  std::size_t elems = 0;
  std::set<int> types;
};

void multiply(void* acc, const void* in, std::size_t count, int type, void* user) {
  auto* calls = static_cast<Calls*>(user);
  calls->elems += count;
  calls->types.insert(type);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i * sizeof(std::uint64_t);
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    std::memcpy(&a, static_cast<char*>(acc) + at, sizeof(a));
    std::memcpy(&b, static_cast<const char*>(in) + at, sizeof(b));
    a = product(a, b);
    std::memcpy(static_cast<char*>(acc) + at, &a, sizeof(a));
  }
}

TEST(ReduceUser, FoldsInOrderInPlaceOnAnyInput) {
  const Pool pool(Type::kUint64);
  std::size_t number = 0;
  for (int n = 1; n <= kMaxInputs; ++n) {
    std::vector<std::uint8_t> expected(kPoolElems * sizeof(std::uint64_t));
    for (std::size_t at = 0; at < expected.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t total = read_code(&pool.inputs[0][at], sizeof(total));
      for (int k = 1; k < n; ++k) total = product(total, read_code(&pool.inputs[k][at], 8));
      std::memcpy(&expected[at], &total, sizeof(total));
    }
    for (int in_place = -1; in_place < n; ++in_place) {
      for (const std::size_t elems : {0, 1, 5, 511, 512, 513, 900}) {  // a block is 512 of them
        Calls calls;
        const UserOp user{multiply, &calls};
        Layout layout{n, 1 + static_cast<int>(number) % 3, elems, number};
        layout.streaming = number % 8;
        layout.in_place = in_place;
        layout.user = &user;
        check_call(pool, {Type::kUint64, RedOp::kUser}, layout, expected);
        if (HasFatalFailure()) return;
        EXPECT_EQ(calls.elems, elems * static_cast<std::size_t>(n - 1));
        if (calls.elems != 0) {
          EXPECT_EQ(calls.types, std::set<int>{static_cast<int>(Type::kUint64)});
        }
        ++number;
      }
    }
  }
}

// The mask of streaming outputs ends at 64; the scaled input may be any.
TEST(ReduceMany, SeventyInputsAndOutputs) {
  constexpr int kMany = 70;
  constexpr std::size_t kElems = 37;
  std::vector<std::vector<float>> in(kMany, std::vector<float>(kElems));
  std::vector<std::vector<float>> out(kMany, std::vector<float>(kElems));
  for (const std::size_t elems : {std::size_t{2}, kElems}) {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (int k = 0; k < kMany; ++k) {
      for (std::size_t i = 0; i < kElems; ++i) in[k][i] = static_cast<float>(k + 1);
      inputs.push_back(in[k].data());
      outputs.push_back(out[k].data());
    }
    ReduceArgs args;
    args.inputs = inputs.data();
    args.num_inputs = kMany;
    args.outputs = outputs.data();
    args.num_outputs = kMany;
    args.elems = elems;
    args.scaled_input = 66;
    args.scale_in = 2.0;
    args.streaming_outputs = ~std::uint64_t{0};
    reduce(args);
    const float expected = 70 * 71 / 2 + 67;
    for (int k = 0; k < kMany; ++k) {
      for (std::size_t i = 0; i < elems; ++i) ASSERT_EQ(out[k][i], expected) << k << ' ' << i;
    }
  }
}

TEST(ReduceTargets, AreThoseOfTheCpu) {
  std::set<std::string> names;
  on_each_target([&] { names.insert(reduce_target_name()); });
#if defined(__x86_64__)
  EXPECT_EQ(names.count("SCALAR") + names.count("EMU128"), 1u);
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_EQ(names.count("SSE4"), 1u);
    EXPECT_EQ(names.count("AVX2"), 1u);
  }
#endif
  EXPECT_EQ(names.count(reduce_target_name()), 1u);
}

}  // namespace
}  // namespace treering
