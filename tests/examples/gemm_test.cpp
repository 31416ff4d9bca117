// The matrix products of the trainer: the reference bit for bit against plain loops, OpenBLAS close
// to it.
#include "train_mlp/gemm.hpp"

#include <bit>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "train_mlp/counter_rng.hpp"

namespace {

using train::Transpose;

struct Shape {
  int m, n, k;
};
// Around the tile of 6 x 16, empty ones, and two of the trainer.
const std::vector<Shape> kShapes = {{1, 1, 1},   {5, 15, 7},    {6, 16, 8},   {7, 17, 9},
                                    {13, 33, 1}, {12, 10, 64},  {0, 4, 5},    {4, 0, 5},
                                    {4, 5, 0},   {43, 128, 64}, {64, 10, 33}, {31, 97, 128}};

std::vector<float> random_matrix(int size, std::uint64_t stream) {
  std::vector<float> values(size);
  for (int i = 0; i < size; ++i) values[i] = train::random_symmetric(7, stream, i);
  return values;
}

// Sums in the order of k, one rounding per operation.
std::vector<float> plain(Transpose ta, Transpose tb, Shape s, const float* a, const float* b) {
  std::vector<float> c(s.m * s.n);
  for (int i = 0; i < s.m; ++i) {
    for (int j = 0; j < s.n; ++j) {
      float sum = 0.0f;
      for (int x = 0; x < s.k; ++x) {
        const float left = ta == Transpose::kYes ? a[x * s.m + i] : a[i * s.k + x];
        const float right = tb == Transpose::kYes ? b[j * s.k + x] : b[x * s.n + j];
        sum += left * right;
      }
      c[i * s.n + j] = sum;
    }
  }
  return c;
}

// Calls body(ta, tb, shape, a, b) for all shapes and transpositions.
template <class Body>
void for_all(const Body& body) {
  for (const Shape& s : kShapes) {
    const auto a = random_matrix(s.m * s.k, 1), b = random_matrix(s.k * s.n, 2);
    for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose tb : {Transpose::kNo, Transpose::kYes}) {
        SCOPED_TRACE(std::to_string(s.m) + " x " + std::to_string(s.n) + " x " +
                     std::to_string(s.k) + (ta == Transpose::kYes ? " T" : " N") +
                     (tb == Transpose::kYes ? "T" : "N"));
        body(ta, tb, s, a, b);
      }
    }
  }
}

TEST(Gemm, ReferenceEqualsPlainLoopsBitForBit) {
  const auto gemm = std::move(train::make_gemm("ref")).value();
  for_all([&](Transpose ta, Transpose tb, Shape s, const auto& a, const auto& b) {
    const auto expected = plain(ta, tb, s, a.data(), b.data());
    std::vector<float> c(expected.size() + 1, -5.0f);  // one guard element
    gemm->multiply(ta, tb, s.m, s.n, s.k, a.data(), b.data(), c.data());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(c[i]), std::bit_cast<std::uint32_t>(expected[i])) << i;
    }
    EXPECT_EQ(c.back(), -5.0f);
  });
}

TEST(Gemm, ReferenceDoesNotDependOnTheSplitOfRowsOrColumns) {
  const auto gemm = std::move(train::make_gemm("ref")).value();
  const int m = 23, n = 40, k = 31, split = 9;
  const auto a = random_matrix(m * k, 3), b = random_matrix(k * n, 4);
  std::vector<float> whole(m * n), rows(m * n);
  gemm->multiply(Transpose::kNo, Transpose::kNo, m, n, k, a.data(), b.data(), whole.data());
  gemm->multiply(Transpose::kNo, Transpose::kNo, split, n, k, a.data(), b.data(), rows.data());
  gemm->multiply(Transpose::kNo, Transpose::kNo, m - split, n, k, a.data() + split * k, b.data(),
                 rows.data() + split * n);
  EXPECT_EQ(whole, rows);
}

TEST(Gemm, OpenBlasIsClose) {
  if (!train::have_openblas()) GTEST_SKIP() << "built without OpenBLAS";
  const auto gemm = std::move(train::make_gemm("openblas")).value();
  for_all([&](Transpose ta, Transpose tb, Shape s, const auto& a, const auto& b) {
    const auto expected = plain(ta, tb, s, a.data(), b.data());
    std::vector<float> c(expected.size(), -5.0f);
    gemm->multiply(ta, tb, s.m, s.n, s.k, a.data(), b.data(), c.data());
    // |error| <= k eps sum |a||b| with |a|, |b| < 1.
    const float bound = 1.2e-7f * static_cast<float>(s.k) * static_cast<float>(s.k);
    for (std::size_t i = 0; i < c.size(); ++i) ASSERT_NEAR(c[i], expected[i], bound) << i;
  });
}

TEST(Gemm, UnknownNamesAreRefused) {
  const auto made = train::make_gemm("mkl");
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("'mkl'"), std::string::npos);
  if (!train::have_openblas()) {
    EXPECT_EQ(train::make_gemm("openblas").error().code, TR_UNSUPPORTED);
  }
}

}  // namespace
