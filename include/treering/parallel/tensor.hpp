// Matrices: what parameters, activations and gradients are made of.
//
// A View is a row-major matrix that somebody else owns, in host or device memory. Its element type
// is a value, not a template argument, so that one text of the layers serves fp64, fp32, bf16 and
// fp16. A Tensor owns its memory, which its Memory counts.
//
// Threads: a View is a value. A Tensor and a Memory belong to one rank's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "treering/result.hpp"
#include "treering/treering.h"

namespace tr::par {

enum class DType : std::uint8_t { kFloat64, kFloat32, kBFloat16, kFloat16 };
constexpr std::size_t size_of(DType type) {
  return type == DType::kFloat64 ? 8 : type == DType::kFloat32 ? 4 : 2;
}
tr_type_t wire_type(DType type);  // TR_FLOAT32 ...
const char* name_of(DType type);  // "fp32"
// What sums of many elements, gradients and the optimizer use: fp64 for fp64, else fp32.
constexpr DType accumulator_of(DType type) {
  return type == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

struct View {
  void* data = nullptr;
  std::int64_t rows = 0, cols = 0;
  std::int64_t stride = 0;  // elements from one row to the next, at least cols
  DType type = DType::kFloat32;

  std::int64_t elements() const { return rows * cols; }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type); }
  bool is_contiguous() const { return stride == cols || rows <= 1; }
  bool is_empty() const { return rows == 0 || cols == 0; }
  // The matrix of `count` rows, or columns, from `first` on; in the same memory.
  View row_range(std::int64_t first, std::int64_t count) const {
    return {at(first, 0), count, cols, stride, type};
  }
  View columns(std::int64_t first, std::int64_t count) const {
    return {at(0, first), rows, count, stride, type};
  }
  // Of contiguous memory: the same elements as one row.
  View flat() const { return {data, 1, elements(), elements(), type}; }
  void* at(std::int64_t row, std::int64_t col) const {
    if (data == nullptr) return nullptr;
    return static_cast<std::byte*>(data) +
           (row * stride + col) * static_cast<std::int64_t>(size_of(type));
  }
};
// A contiguous matrix at `data`.
constexpr View view_of(void* data, std::int64_t rows, std::int64_t cols, DType type) {
  return {data, rows, cols, cols, type};
}

// What memory is for; the categories of the memory report.
enum class Use : std::uint8_t { kParameters, kGradients, kOptimizer, kActivations, kBuffers };
inline constexpr int kNumUses = 5;
const char* name_of(Use use);  // "parameters"

// Where tensors live: host or device memory. Counts what is allocated, by use.
class Memory {
 public:
  virtual ~Memory() = default;
  std::int64_t bytes(Use use) const { return now_[static_cast<int>(use)]; }
  std::int64_t bytes() const;                        // of all uses
  std::int64_t peak_bytes() const { return peak_; }  // of the sum, since the last reset_peak
  void reset_peak() { peak_ = bytes(); }

 protected:
  friend class Tensor;
  // Aligned to 64 bytes, contents undefined; nullptr: no memory. On the host, parameters and
  // gradients are tr_mem_alloc's, so that they may be registered. A dry run gives out addresses
  // that nobody may touch.
  virtual void* allocate(Use use, std::size_t bytes) = 0;
  virtual void release(Use use, void* data, std::size_t bytes) = 0;

 private:
  void count(Use use, std::int64_t change);
  std::int64_t now_[kNumUses] = {};
  std::int64_t peak_ = 0;
};

// A contiguous matrix of its own. Moved, never copied; empty when moved from. Its Memory outlives
// it.
class Tensor {
 public:
  Tensor() = default;
  // Contents undefined. TR_SYSTEM_ERROR, which says how much was asked for: no memory.
  static Result<Tensor> make(Memory& memory, Use use, std::int64_t rows, std::int64_t cols,
                             DType type);
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor gone(std::move(other));
    swap(gone);
    return *this;
  }
  ~Tensor();

  const View& view() const { return view_; }
  bool is_empty() const { return memory_ == nullptr; }
  // The same elements in another shape: rows x cols stays the same number.
  void reshape(std::int64_t rows, std::int64_t cols) {
    view_ = view_of(view_.data, rows, cols, view_.type);
  }

 private:
  void swap(Tensor& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(use_, other.use_);
    std::swap(view_, other.view_);
  }
  Memory* memory_ = nullptr;
  Use use_ = Use::kBuffers;
  View view_;
};

}  // namespace tr::par
