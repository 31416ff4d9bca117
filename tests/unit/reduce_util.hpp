// Inputs, guarded buffers and calls for the tests of reduce().
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <ostream>
#include <random>
#include <vector>

#include "engine/reduce.hpp"
#include "hwy/targets.h"
#include "reduce_reference.hpp"

namespace treering {

inline constexpr unsigned kSeed = 20260301;
inline constexpr int kMaxInputs = 5;
inline constexpr std::size_t kPoolElems = 900;  // of each input; calls take a window of them

// Runs `body` with reduce() confined to one instruction set after the other.
template <class Body>
void on_each_target(const Body& body) {
  std::int64_t rest = hwy::SupportedTargets();
  for (; rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    hwy::GetChosenTarget().Update(target);
    SCOPED_TRACE(reduce_target_name());
    body();
    if (testing::Test::HasFatalFailure()) break;
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

inline std::uint64_t read_code(const std::uint8_t* p, std::size_t element_bytes) {
  std::uint64_t code = 0;
  std::memcpy(&code, p, element_bytes);  // little endian
  return code;
}

// Random codes; for the floats also their special ones, and for all types small numbers, so that
// sums are not all noise, ties occur and fp8 does not overflow at once.
inline std::uint64_t random_code(Type type, std::mt19937_64& random) {
  const std::uint64_t kind = random() % 8;
  if (!is_float(type)) return kind < 2 ? random() % 5 - 2 : random();
  const reference::Format format = reference::format_of(type);
  const std::uint64_t sign = random() % 2 != 0 ? format.sign() : 0;
  if (kind == 0) {
    const std::uint64_t special[] = {
        0, 1, format.overflow, format.quiet_nan, format.finite_max, format.overflow + 1};
    return sign | special[random() % 6];
  }
  if (kind == 1) return random();
  const int exponent = static_cast<int>(random() % 6) - 3;
  return reference::encode(type, std::ldexp(static_cast<double>(random() % 4096) / 4096, exponent) *
                                     (sign != 0 ? -1 : 1));
}

struct Pool {
  explicit Pool(Type type) : element_bytes(type_bytes(type)) {
    std::mt19937_64 random(kSeed + static_cast<unsigned>(type));
    for (auto& input : inputs) {
      input.resize(kPoolElems * element_bytes);
      for (std::size_t i = 0; i < kPoolElems; ++i) {
        const std::uint64_t code = random_code(type, random);
        std::memcpy(input.data() + i * element_bytes, &code, element_bytes);
      }
    }
  }

  std::vector<std::uint8_t> expected(const reference::Operation& operation, int n) const {
    std::vector<std::uint8_t> bytes(kPoolElems * element_bytes);
    for (std::size_t i = 0; i < kPoolElems; ++i) {
      std::vector<std::uint64_t> codes;
      for (int k = 0; k < n; ++k) {
        codes.push_back(read_code(inputs[k].data() + i * element_bytes, element_bytes));
      }
      const std::uint64_t code = reference::fold(operation, codes);
      std::memcpy(bytes.data() + i * element_bytes, &code, element_bytes);
    }
    return bytes;
  }

  std::size_t element_bytes;
  std::array<std::vector<std::uint8_t>, kMaxInputs> inputs;
};

// `bytes` at `offset` from a 64-byte boundary, between guards.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t offset)
      : memory_(bytes + offset + 3 * kGuard, kFill), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = (kGuard - address % kGuard) + kGuard + offset;
  }
  Guarded(Guarded&&) = default;  // a copy would lie on another alignment
  std::uint8_t* data() { return memory_.data() + begin_; }
  bool holds(const std::uint8_t* expected) const {
    return bytes_ == 0 || std::memcmp(memory_.data() + begin_, expected, bytes_) == 0;
  }
  bool guards_intact() const {
    const auto filled = [](std::uint8_t byte) { return byte == kFill; };
    return std::all_of(memory_.begin(), memory_.begin() + begin_, filled) &&
           std::all_of(memory_.begin() + begin_ + bytes_, memory_.end(), filled);
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::uint8_t kFill = 0xa5;
  std::vector<std::uint8_t> memory_;
  std::size_t bytes_;
  std::ptrdiff_t begin_;
};

struct Layout {
  int inputs = 1;
  int outputs = 1;
  std::size_t elems = 0;
  std::size_t number = 0;  // of the call: where its window and its buffers lie
  std::uint64_t streaming = 0;
  int in_place = -1;  // the input that the first output is
  const UserOp* user = nullptr;
};

inline std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << layout.inputs << " inputs, " << layout.outputs << " outputs, " << layout.elems
             << " elements, call " << layout.number << ", streaming " << layout.streaming
             << ", in place " << layout.in_place << ", seed " << kSeed;
}

// One call on a window of the pool; `expected` is for the whole pool. Consecutive call numbers put
// the first output on each alignment in turn and the inputs on others.
inline void check_call(const Pool& pool, const reference::Operation& operation,
                       const Layout& layout, const std::vector<std::uint8_t>& expected) {
  const std::size_t size = pool.element_bytes;
  const std::size_t bytes = layout.elems * size;
  const std::size_t window = layout.number * 7 % (kPoolElems - layout.elems + 1) * size;
  const auto offset = [&](std::size_t step) { return layout.number * step * size % 64; };
  std::vector<Guarded> in;
  std::vector<Guarded> out;
  for (int k = 0; k < layout.inputs; ++k) {
    in.emplace_back(bytes, offset(3 + 2 * k));
    std::memcpy(in[k].data(), pool.inputs[k].data() + window, bytes);
  }
  for (int k = 0; k < layout.outputs; ++k) out.emplace_back(bytes, offset(1 + 4 * k));
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (Guarded& buffer : in) inputs.push_back(buffer.data());
  for (Guarded& buffer : out) outputs.push_back(buffer.data());
  if (layout.in_place >= 0) {
    std::memcpy(outputs[0], inputs[layout.in_place], bytes);
    inputs[layout.in_place] = outputs[0];
  }

  ReduceArgs args;
  args.inputs = inputs.data();
  args.num_inputs = layout.inputs;
  args.outputs = outputs.data();
  args.num_outputs = layout.outputs;
  args.elems = layout.elems;
  args.type = operation.type;
  args.op = operation.op;
  args.scaled_input = operation.scaled_input;
  args.scale_in = operation.scale_in;
  args.divisor = operation.divisor;
  args.streaming_outputs = layout.streaming;
  args.user = layout.user;
  reduce(args);

  for (int k = 0; k < layout.outputs; ++k) {
    ASSERT_TRUE(out[k].holds(expected.data() + window))
        << "output " << k << ": " << type_name(operation.type) << ' ' << red_op_name(operation.op)
        << ", " << layout;
    ASSERT_TRUE(out[k].guards_intact()) << "output " << k << ": " << layout;
  }
  for (int k = 0; k < layout.inputs; ++k) {
    ASSERT_TRUE(in[k].holds(pool.inputs[k].data() + window)) << "input " << k << ": " << layout;
  }
}

}  // namespace treering
