// Sorts reductions by kind: short ones stay here, element by element; long ones go to the vector
// kernels, at once or, where a caller's operator or an integer division must run in between, block
// by block.
#include "engine/reduce.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "engine/reduce_folds.hpp"
#include "hwy/cache_control.h"

namespace treering {
namespace {

// Up to here a reduction is done before a vector kernel would have been chosen.
constexpr std::size_t kScalarElems = 4;
// Of the stack and of the first-level cache, for what runs block by block; whole elements.
constexpr std::size_t kBlockBytes = 4096;
// Several outputs are copied a piece at a time, so that the input is read from memory once.
constexpr std::size_t kCopyBytes = 16384;

const std::uint8_t* at_byte(const void* pointer, std::size_t offset) {
  return static_cast<const std::uint8_t*>(pointer) + offset;
}
std::uint8_t* at_byte(void* pointer, std::size_t offset) {
  return static_cast<std::uint8_t*>(pointer) + offset;
}

// One operand of a copy or of a block: `bytes` from `source` to `target`, which may be the same.
void copy(const void* source, void* target, std::size_t bytes, bool streaming) {
  if (source == target) return;
  // Longer copies go through our own loop: the C library may choose `rep movsb`, which reads what
  // another core has just written at half the speed (measured on Zen 3).
  constexpr std::size_t kShortCopyBytes = 2048;
  if (!streaming && bytes < kShortCopyBytes) {
    std::memcpy(target, source, bytes);
    return;
  }
  ReduceArgs move;
  move.inputs = &source;
  move.num_inputs = 1;
  move.outputs = &target;
  move.num_outputs = 1;
  move.type = Type::kUint8;
  move.streaming_outputs = streaming ? 1 : 0;
  fold_vectors(move, 0, bytes);
}

bool is_streaming(const ReduceArgs& args, int output) {
  return output < 64 && ((args.streaming_outputs >> output) & 1) != 0;
}

// `bytes` of `source` to the place `offset` bytes into each output.
void copy_to_outputs(const ReduceArgs& args, const void* source, std::size_t offset,
                     std::size_t bytes) {
  for (int output = 0; output < args.num_outputs; ++output) {
    copy(source, at_byte(args.outputs[output], offset), bytes, is_streaming(args, output));
  }
}

void move(const ReduceArgs& args) {
  const std::size_t bytes = args.elems * type_bytes(args.type);
  const std::size_t piece_bytes = args.num_outputs == 1 ? bytes : kCopyBytes;
  for (std::size_t offset = 0; offset < bytes; offset += piece_bytes) {
    copy_to_outputs(args, at_byte(args.inputs[0], offset), offset,
                    std::min(piece_bytes, bytes - offset));
  }
}

thread_local bool t_in_user_operator = false;
thread_local Status t_operator_failure;

// An operator is the caller's code: an exception of it must not unwind the engine, nor end the
// thread that drives streams.
void call_operator(const UserOp& op, void* acc, const void* in, std::size_t count, Type type) {
  constexpr const char* kThrew = "the operator (tr_op_create) threw an exception";
  try {
    op.combine(acc, in, count, static_cast<int>(type), op.user);
  } catch (const std::exception& e) {
    t_operator_failure = Status(Code::kSystem, std::string(kThrew) + ": " + e.what());
  } catch (...) {
    t_operator_failure = Status(Code::kSystem, std::string(kThrew) + " that is no std::exception");
  }
}

// By way of a block of our own, because the first output may be an input that is still to come.
void fold_user(const ReduceArgs& args) {
  alignas(64) std::uint8_t block[kBlockBytes];
  const std::size_t bytes = args.elems * type_bytes(args.type);
  t_in_user_operator = true;
  for (std::size_t offset = 0; offset < bytes; offset += kBlockBytes) {
    const std::size_t block_bytes = std::min(kBlockBytes, bytes - offset);
    std::memcpy(block, at_byte(args.inputs[0], offset), block_bytes);
    for (int input = 1; input < args.num_inputs && t_operator_failure.ok(); ++input) {
      call_operator(*args.user, block, at_byte(args.inputs[input], offset),
                    block_bytes / type_bytes(args.type), args.type);
    }
    if (!t_operator_failure.ok()) break;
    copy_to_outputs(args, block, offset, block_bytes);
  }
  t_in_user_operator = false;
}

// Truncates toward zero.
template <class T>
void divide(std::uint8_t* p, std::size_t elems, std::uint32_t divisor) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  for (std::size_t i = 0; i < elems; ++i, p += sizeof(T)) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    value = static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
    std::memcpy(p, &value, sizeof(T));
  }
}

void divide(Type type, std::uint8_t* p, std::size_t elems, std::uint32_t divisor) {
  switch (type) {
    case Type::kInt8:
      return divide<std::int8_t>(p, elems, divisor);
    case Type::kUint8:
      return divide<std::uint8_t>(p, elems, divisor);
    case Type::kInt32:
      return divide<std::int32_t>(p, elems, divisor);
    case Type::kUint32:
      return divide<std::uint32_t>(p, elems, divisor);
    case Type::kInt64:
      return divide<std::int64_t>(p, elems, divisor);
    default:
      return divide<std::uint64_t>(p, elems, divisor);
  }
}

// The average of integers, a block at a time in the first output while it is in the cache.
void fold_and_divide(const ReduceArgs& args) {
  ReduceArgs first_output = args;
  first_output.num_outputs = 1;
  first_output.streaming_outputs = 0;
  const std::size_t element_bytes = type_bytes(args.type);
  const std::size_t block_elems = kBlockBytes / element_bytes;
  for (std::size_t first = 0; first < args.elems; first += block_elems) {
    const std::size_t elems = std::min(block_elems, args.elems - first);
    const std::size_t offset = first * element_bytes;
    fold_vectors(first_output, first, elems);
    std::uint8_t* block = at_byte(args.outputs[0], offset);
    divide(args.type, block, elems, args.divisor);
    copy_to_outputs(args, block, offset, elems * element_bytes);
  }
}

}  // namespace

bool in_user_operator() { return t_in_user_operator; }

Status take_operator_failure() { return std::exchange(t_operator_failure, Status{}); }

void reduce(const ReduceArgs& args) {
  if (args.elems == 0) return;
  if (args.op == RedOp::kNone) {
    move(args);
  } else if (args.op == RedOp::kUser) {
    fold_user(args);
  } else if (args.divisor != 1 && !is_float(args.type)) {
    fold_and_divide(args);
  } else if (args.elems <= kScalarElems) {
    return fold_scalars(args, 0, args.elems);
  } else {
    fold_vectors(args, 0, args.elems);
  }
  if (args.streaming_outputs != 0) hwy::FlushStream();
}

}  // namespace treering
