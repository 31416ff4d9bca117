// Matrices of doubles for tests, and their way into and out of tensors of any type.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "treering/parallel/compute.hpp"
#include "treering/parallel/rng.hpp"
#include "treering/parallel/tensor.hpp"

namespace partest {

using tr::par::Compute;
using tr::par::DType;
using tr::par::Tensor;
using tr::par::Use;
using tr::par::View;

inline constexpr DType kTypes[] = {DType::kFloat64, DType::kFloat32, DType::kBFloat16,
                                   DType::kFloat16};
// Half the distance from 1 to the next number.
inline double rounding_of(DType type) {
  return type == DType::kFloat64    ? 0x1p-53
         : type == DType::kFloat32  ? 0x1p-24
         : type == DType::kBFloat16 ? 0x1p-8
                                    : 0x1p-11;
}

// The value of a Result, or a failed test and the end of the program.
template <class T>
T must(tr::Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return std::move(result).value();
}
inline void must(const tr::Status& status) {
  if (!status) {
    ADD_FAILURE() << status.error().message;
    std::abort();
  }
}
// "" for success.
inline std::string message_of(const tr::Status& status) {
  return status ? "" : status.error().message;
}
template <class T>
std::string message_of(const tr::Result<T>& result) {
  return result ? "" : result.error().message;
}

struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> x;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c) : rows(r), cols(c), x(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t i, std::int64_t j) { return x[i * cols + j]; }
  double operator()(std::int64_t i, std::int64_t j) const { return x[i * cols + j]; }
  bool operator==(const Matrix&) const = default;

  Matrix part(std::int64_t row, std::int64_t col, std::int64_t r, std::int64_t c) const {
    Matrix out(r, c);
    for (std::int64_t i = 0; i < r; ++i) {
      for (std::int64_t j = 0; j < c; ++j) out(i, j) = (*this)(row + i, col + j);
    }
    return out;
  }
};

// In [-1, 1), exact in fp32; `stream` tells matrices apart.
inline Matrix random_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t stream) {
  Matrix out(rows, cols);
  for (std::size_t i = 0; i < out.x.size(); ++i) {
    out.x[i] = tr::par::random_symmetric(20261130, stream, i);
  }
  return out;
}

inline void write(Compute& compute, const Matrix& from, const View& to) {
  Tensor wide =
      must(Tensor::make(compute.memory(), Use::kBuffers, from.rows, from.cols, DType::kFloat64));
  must(compute.upload(from.x.data(), wide.view()));
  must(compute.copy(wide.view(), to));
}
inline Matrix read(Compute& compute, const View& from) {
  Matrix out(from.rows, from.cols);
  Tensor wide =
      must(Tensor::make(compute.memory(), Use::kBuffers, from.rows, from.cols, DType::kFloat64));
  must(compute.copy(from, wide.view()));
  must(compute.download(wide.view(), out.x.data()));
  return out;
}
inline Tensor empty_tensor(Compute& compute, std::int64_t rows, std::int64_t cols, DType type) {
  return must(Tensor::make(compute.memory(), Use::kActivations, rows, cols, type));
}
inline Tensor tensor_of(Compute& compute, const Matrix& from, DType type) {
  Tensor out = empty_tensor(compute, from.rows, from.cols, type);
  write(compute, from, out.view());
  return out;
}
// What `type` keeps of the numbers.
inline Matrix rounded(Compute& compute, const Matrix& from, DType type) {
  return read(compute, tensor_of(compute, from, type).view());
}

inline void expect_near(const Matrix& actual, const Matrix& expected, double tolerance) {
  ASSERT_EQ(actual.rows, expected.rows);
  ASSERT_EQ(actual.cols, expected.cols);
  for (std::size_t i = 0; i < actual.x.size(); ++i) {
    ASSERT_NEAR(actual.x[i], expected.x[i], tolerance) << "element " << i;
  }
}
inline void expect_equal(const Matrix& actual, const Matrix& expected) {
  ASSERT_EQ(actual.rows, expected.rows);
  ASSERT_EQ(actual.cols, expected.cols);
  for (std::size_t i = 0; i < actual.x.size(); ++i) {
    ASSERT_EQ(actual.x[i], expected.x[i]) << "element " << i;
  }
}

}  // namespace partest
