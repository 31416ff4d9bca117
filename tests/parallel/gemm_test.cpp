// Matrix products of the host or a GPU (compute_under_test.hpp): the reference bit for bit against
// plain loops, OpenBLAS or cuBLAS within its error bound; all types, transpositions, strides, and
// shapes around the tiles.
#include <cmath>
#include <gtest/gtest.h>
#include <optional>

#include "compute_under_test.hpp"
#include "matrices.hpp"

namespace {

using namespace partest;
using tr::par::Transpose;
using tr::par::Update;

struct Case {
  std::int64_t m, n, k;
  Transpose ta, tb;
  DType type;
  bool into_accumulator, strided;
  Update update;

  std::string text() const {
    return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + " " +
           (ta == Transpose::kYes ? "T" : "N") + (tb == Transpose::kYes ? "T" : "N") + " " +
           name_of(type) + (into_accumulator ? " into its accumulator" : "") +
           (strided ? " strided" : "") + (update == Update::kAdd ? " added" : "");
  }
};

// Around tiles of 6 x 16 and 6 x 8, empty ones, and two of a trainer.
constexpr std::int64_t kShapes[][3] = {{1, 1, 1},   {5, 15, 7}, {6, 16, 8},   {7, 17, 9},
                                       {13, 33, 1}, {6, 8, 5},  {12, 9, 64},  {0, 4, 5},
                                       {4, 0, 5},   {4, 5, 0},  {43, 64, 32}, {31, 97, 128}};

template <class Body>
void for_all(const Body& body) {
  for (const auto& [m, n, k] : kShapes) {
    for (const DType type : kTypes) {
      for (int bits = 0; bits < 32; ++bits) {
        const Case c{m,
                     n,
                     k,
                     bits & 1 ? Transpose::kYes : Transpose::kNo,
                     bits & 2 ? Transpose::kYes : Transpose::kNo,
                     type,
                     (bits & 4) != 0,
                     (bits & 8) != 0,
                     bits & 16 ? Update::kAdd : Update::kOverwrite};
        SCOPED_TRACE(c.text());
        body(c);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// A matrix of its own, or the middle of a larger one that is otherwise 77.
struct Placed {
  Tensor memory;
  View view;

  Placed(Compute& compute, const Matrix& values, DType type, bool strided) {
    const std::int64_t margin = strided ? 1 : 0;
    Matrix whole(values.rows + margin, values.cols + 2 * margin);
    std::fill(whole.x.begin(), whole.x.end(), 77.0);
    for (std::int64_t i = 0; i < values.rows; ++i) {
      for (std::int64_t j = 0; j < values.cols; ++j) whole(i, j + margin) = values(i, j);
    }
    memory = tensor_of(compute, whole, type);
    view = memory.view().columns(margin, values.cols).row_range(0, values.rows);
  }
  // Was only the view written?
  void expect_margins(Compute& compute) const {
    const Matrix whole = read(compute, memory.view());
    const std::int64_t margin = whole.rows - view.rows;
    for (std::int64_t i = 0; margin > 0 && i < whole.rows; ++i) {
      ASSERT_EQ(whole(i, 0), 77.0);
      ASSERT_EQ(whole(i, whole.cols - 1), 77.0);
    }
  }
};

struct Inputs {
  Matrix a, b, c;  // as stored
  double a_at(const Case& s, std::int64_t i, std::int64_t k) const {
    return s.ta == Transpose::kYes ? a(k, i) : a(i, k);
  }
  double b_at(const Case& s, std::int64_t k, std::int64_t j) const {
    return s.tb == Transpose::kYes ? b(j, k) : b(k, j);
  }
};

DType type_of_c(const Case& s) {
  return s.into_accumulator ? tr::par::accumulator_of(s.type) : s.type;
}

Inputs inputs_of(Compute& compute, const Case& s) {
  const bool turn_a = s.ta == Transpose::kYes, turn_b = s.tb == Transpose::kYes;
  return {rounded(compute, random_matrix(turn_a ? s.k : s.m, turn_a ? s.m : s.k, 1), s.type),
          rounded(compute, random_matrix(turn_b ? s.n : s.k, turn_b ? s.k : s.n, 2), s.type),
          rounded(compute, random_matrix(s.m, s.n, 3), type_of_c(s))};
}

Matrix product_of(Compute& compute, const Case& s, const Inputs& in) {
  const Placed a(compute, in.a, s.type, s.strided), b(compute, in.b, s.type, s.strided);
  const Placed c(compute, in.c, type_of_c(s), s.strided);
  must(compute.multiply(s.ta, s.tb, a.view, b.view, c.view, s.update));
  c.expect_margins(compute);
  return read(compute, c.view);
}

// Sums in the order of k, one rounding for each operation; then one addition, then one rounding.
template <class A>
Matrix plain_loops(Compute& compute, const Case& s, const Inputs& in) {
  Matrix out(s.m, s.n);
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      A sum = 0;
      for (std::int64_t k = 0; k < s.k; ++k) {
        const A term = static_cast<A>(in.a_at(s, i, k)) * static_cast<A>(in.b_at(s, k, j));
        sum += term;
      }
      out(i, j) = s.update == Update::kAdd ? static_cast<A>(in.c(i, j)) + sum : sum;
    }
  }
  return rounded(compute, out, type_of_c(s));
}

TEST(Gemm, ReferenceEqualsPlainLoopsBitForBit) {
  const auto compute = must(make_compute("ref"));
  EXPECT_TRUE(compute->outputs_are_independent());
  for_all([&](const Case& s) {
    const Inputs in = inputs_of(*compute, s);
    expect_equal(product_of(*compute, s, in), s.type == DType::kFloat64
                                                  ? plain_loops<double>(*compute, s, in)
                                                  : plain_loops<float>(*compute, s, in));
  });
}

TEST(Gemm, TheFastOneIsWithinTheBoundOfASum) {
  const auto made = make_compute(kFastGemm);
  if (!made && made.error().code == TR_UNSUPPORTED) GTEST_SKIP() << message_of(made);
  ASSERT_TRUE(made) << message_of(made);
  Compute* const compute = made.value().get();
  EXPECT_FALSE(compute->outputs_are_independent());
  for_all([&](const Case& s) {
    const Inputs in = inputs_of(*compute, s);
    const Matrix out = product_of(*compute, s, in);
    const double unit = rounding_of(tr::par::accumulator_of(s.type));
    for (std::int64_t i = 0; i < s.m; ++i) {
      for (std::int64_t j = 0; j < s.n; ++j) {
        long double sum = s.update == Update::kAdd ? in.c(i, j) : 0.0;
        long double size = std::abs(sum);
        for (std::int64_t k = 0; k < s.k; ++k) {
          const long double term = static_cast<long double>(in.a_at(s, i, k)) * in.b_at(s, k, j);
          sum += term;
          size += std::abs(term);
        }
        const double stored = rounding_of(type_of_c(s));
        const auto bound = static_cast<double>(size) * (s.k + 1) * unit +
                           static_cast<double>(std::abs(sum)) * 1.01 * stored + 1e-7 * stored;
        ASSERT_NEAR(out(i, j), static_cast<double>(sum), bound) << i << ", " << j;
      }
    }
  });
}

// Gradients of micro-batches are added one by one; of replicas, after all are there. Both must be
// the same bits, with any product.
TEST(Gemm, AddingIsOneAdditionOfTheFinishedProduct) {
  for (const char* name : {"ref", kFastGemm}) {
    const auto made = make_compute(name);
    if (!made) continue;
    Compute& compute = *made.value();
    const Tensor a = tensor_of(compute, random_matrix(700, 33, 5), DType::kFloat32);
    const Tensor b = tensor_of(compute, random_matrix(700, 65, 6), DType::kFloat32);
    const Tensor product = empty_tensor(compute, 33, 65, DType::kFloat32);
    const Tensor added = tensor_of(compute, random_matrix(33, 65, 7), DType::kFloat32);
    const Tensor later = tensor_of(compute, random_matrix(33, 65, 7), DType::kFloat32);
    must(compute.multiply(Transpose::kYes, Transpose::kNo, a.view(), b.view(), product.view()));
    must(compute.add(product.view(), later.view()));
    must(compute.multiply(Transpose::kYes, Transpose::kNo, a.view(), b.view(), added.view(),
                          Update::kAdd));
    expect_equal(read(compute, added.view()), read(compute, later.view()));
  }
}

TEST(Gemm, RefusesWhatDoesNotFitAndSaysIt) {
  for (const char* name : {"ref", "dry"}) {
    const auto compute =
        must(name == std::string("ref") ? make_compute(name) : tr::par::make_host_compute(name));
    const Tensor a = empty_tensor(*compute, 3, 4, DType::kFloat32);
    const Tensor b = empty_tensor(*compute, 5, 6, DType::kFloat32);
    const Tensor c = empty_tensor(*compute, 3, 6, DType::kFloat32);
    EXPECT_EQ(
        message_of(compute->multiply(Transpose::kNo, Transpose::kNo, a.view(), b.view(), c.view())),
        "multiply: c (3 x 6 fp32) = a (3 x 4 fp32) b (5 x 6 fp32): they do not fit");
    const Tensor half = empty_tensor(*compute, 4, 6, DType::kBFloat16);
    EXPECT_EQ(message_of(compute->multiply(Transpose::kNo, Transpose::kNo, a.view(), half.view(),
                                           c.view())),
              "multiply: c (3 x 6 fp32) = a (3 x 4 fp32) b (4 x 6 bf16): they do not fit");
  }
  EXPECT_EQ(message_of(make_compute("mkl")),
            std::string("there are no matrix products named 'mkl'") +
                (kIsOnGpu ? " on a GPU: auto, ref, cublas" : ": ref, openblas, dry"));
}

}  // namespace
