// The matrix products, of the host or (COMPUTE_TEST_CUDA) of a GPU: the reference bit for bit
// against plain loops, the fast one close to it.
#include "compute/gemm.hpp"

#include <bit>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "compute_under_test.hpp"
#include "train_mlp/counter_rng.hpp"

namespace {

using compute::Transpose;

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

// By a Gemm, on its device; one element more than the result has, which must stay -5.
std::vector<float> by(compute::Gemm& gemm, Transpose ta, Transpose tb, Shape s,
                      const std::vector<float>& a, const std::vector<float>& b) {
  const auto on_a = on_device(a), on_b = on_device(b);
  const auto on_c = on_device(std::vector<float>(s.m * s.n + 1, -5.0f));
  const bool a_turned = ta == Transpose::kYes, b_turned = tb == Transpose::kYes;
  gemm.multiply(ta, {on_a.data(), a_turned ? s.k : s.m, a_turned ? s.m : s.k}, tb,
                {on_b.data(), b_turned ? s.n : s.k, b_turned ? s.k : s.n}, {on_c.data(), s.m, s.n});
  std::vector<float> c = on_host(on_c);
  EXPECT_EQ(c.back(), -5.0f);
  c.pop_back();
  return c;
}

TEST(Gemm, ReferenceEqualsPlainLoopsBitForBit) {
  const auto gemm = std::move(compute::make_gemm(device(), "ref")).value();
  for_all([&](Transpose ta, Transpose tb, Shape s, const auto& a, const auto& b) {
    const auto expected = plain(ta, tb, s, a.data(), b.data());
    const auto c = by(*gemm, ta, tb, s, a, b);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(c[i]), std::bit_cast<std::uint32_t>(expected[i])) << i;
    }
  });
}

TEST(Gemm, ReferenceDoesNotDependOnTheSplitOfRowsOrColumns) {
  const auto gemm = std::move(compute::make_gemm(device(), "ref")).value();
  const int m = 23, n = 40, k = 31, split = 9;
  const auto a = random_matrix(m * k, 3), b = random_matrix(k * n, 4);
  const std::vector<float> first(a.begin(), a.begin() + split * k),
      last(a.begin() + split * k, a.end());
  const auto product = [&](int rows, const std::vector<float>& of) {
    return by(*gemm, Transpose::kNo, Transpose::kNo, {rows, n, k}, of, b);
  };
  auto rows = product(split, first);
  const auto rest = product(m - split, last);
  rows.insert(rows.end(), rest.begin(), rest.end());
  EXPECT_EQ(product(m, a), rows);
}

TEST(Gemm, TheFastOneIsClose) {
  auto made = compute::make_gemm(device(), kFastGemm);
  if (!made.ok()) GTEST_SKIP() << made.error().message;
  for_all([&](Transpose ta, Transpose tb, Shape s, const auto& a, const auto& b) {
    const auto expected = plain(ta, tb, s, a.data(), b.data());
    const auto c = by(*made.value(), ta, tb, s, a, b);
    // |error| <= k eps sum |a||b| with |a|, |b| < 1.
    const float bound = 1.2e-7f * static_cast<float>(s.k) * static_cast<float>(s.k);
    for (std::size_t i = 0; i < c.size(); ++i) ASSERT_NEAR(c[i], expected[i], bound) << i;
  });
}

TEST(Gemm, AutoIsTheFastOneIfThereIsOne) {
  const bool has_fast = compute::make_gemm(device(), kFastGemm).ok();
  EXPECT_STREQ(compute::make_gemm(device(), "auto").value()->name(), has_fast ? kFastGemm : "ref");
}

TEST(Gemm, UnknownNamesAreRefused) {
  for (const std::string name : {"mkl", kOtherGemm}) {
    const auto made = compute::make_gemm(device(), name);
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().message.find("'" + name + "'"), std::string::npos);
  }
}

}  // namespace
