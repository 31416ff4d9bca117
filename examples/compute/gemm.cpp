#include "compute/gemm.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "compute/cuda.hpp"

#ifdef COMPUTE_HAVE_OPENBLAS
#include <cblas.h>
#endif

// One body, compiled for several instruction sets, chosen when the program starts. None of them
// fuses a*b+c (-ffp-contract=off), so they agree bit for bit. A sanitizer's runtime is not up yet
// when the choice is made.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COMPUTE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define COMPUTE_CLONES
#endif

namespace compute {
namespace {

constexpr int kRows = 6;  // of c at once: 6 x 16 sums stay in registers
constexpr int kCols = 16;

struct Row {
  float x[kCols];
};

// sums[r] = sum over k of a(r, k) * panel[k], k ascending. a(r, k) = a[r * row_stride + k *
// k_stride].
COMPUTE_CLONES void tile(int k, const float* a, std::ptrdiff_t row_stride, std::ptrdiff_t k_stride,
                         const Row* panel, Row* sums) {
  // Half a row; any alignment.
  using Vec [[gnu::vector_size(kCols / 2 * sizeof(float)), gnu::aligned(4), gnu::may_alias]] =
      float;
  Vec low[kRows] = {}, high[kRows] = {};
  for (int i = 0; i < k; ++i) {
    const Vec* b = reinterpret_cast<const Vec*>(panel[i].x);
    for (int r = 0; r < kRows; ++r) {
      const float x = a[r * row_stride + i * k_stride];
      low[r] += x * b[0];
      high[r] += x * b[1];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    Vec* to = reinterpret_cast<Vec*>(sums[r].x);
    to[0] = low[r];
    to[1] = high[r];
  }
}

class ReferenceGemm : public Gemm {
 public:
  const char* name() const override { return "ref"; }
  bool rows_are_independent() const override { return true; }

  void multiply(Transpose ta, Matrix<const float> left, Transpose tb, Matrix<const float> right,
                Matrix<float> to) override {
    const int m = to.rows, n = to.columns, k = ta == Transpose::kYes ? left.rows : left.columns;
    const float *a = left.data, *b = right.data;
    float* c = to.data;
    const std::ptrdiff_t row_stride = ta == Transpose::kYes ? 1 : k;
    const std::ptrdiff_t k_stride = ta == Transpose::kYes ? m : 1;
    tail_.assign(static_cast<std::size_t>(kRows) * k, 0.0f);
    pack(tb, n, k, b);
    for (int j = 0; j < n; j += kCols) {
      const int cols = std::min(kCols, n - j);
      const Row* panel = panels_.data() + static_cast<std::size_t>(j / kCols) * k;
      for (int i = 0; i < m; i += kRows) {
        const int rows = std::min(kRows, m - i);
        Row sums[kRows];
        const float* from = a + i * row_stride;
        if (rows == kRows) {
          tile(k, from, row_stride, k_stride, panel, sums);
        } else {
          // A full tile would read behind the last row of a.
          for (int r = 0; r < rows; ++r) {
            for (int x = 0; x < k; ++x) tail_[r * k + x] = from[r * row_stride + x * k_stride];
          }
          tile(k, tail_.data(), k, 1, panel, sums);
        }
        for (int r = 0; r < rows; ++r) {
          for (int x = 0; x < cols; ++x)
            c[static_cast<std::size_t>(i + r) * n + j + x] = sums[r].x[x];
        }
      }
    }
  }

 private:
  // op(b) as panels of kCols columns: row i of panel j holds op(b)(i, j kCols ...), the rest zero.
  void pack(Transpose tb, int n, int k, const float* b) {
    const int panels = (n + kCols - 1) / kCols;
    panels_.assign(static_cast<std::size_t>(panels) * k, Row{});
    const auto at = [&](int i, int column) -> float& {
      return panels_[static_cast<std::size_t>(column / kCols) * k + i].x[column % kCols];
    };
    if (tb == Transpose::kYes) {
      for (int column = 0; column < n; ++column) {
        for (int i = 0; i < k; ++i) at(i, column) = *b++;
      }
    } else {
      for (int i = 0; i < k; ++i, b += n) {
        for (int j = 0; j < n; j += kCols) std::copy_n(b + j, std::min(kCols, n - j), &at(i, j));
      }
    }
  }

  std::vector<Row> panels_;
  std::vector<float> tail_;
};

#ifdef COMPUTE_HAVE_OPENBLAS
class OpenBlasGemm : public Gemm {
 public:
  OpenBlasGemm() { openblas_set_num_threads(1); }
  const char* name() const override { return "openblas"; }
  bool rows_are_independent() const override { return false; }

  void multiply(Transpose ta, Matrix<const float> a, Transpose tb, Matrix<const float> b,
                Matrix<float> c) override {
    const int k = ta == Transpose::kYes ? a.rows : a.columns;
    if (c.size() == 0) return;
    if (k == 0) {
      std::fill_n(c.data, c.size(), 0.0f);
      return;
    }
    cblas_sgemm(CblasRowMajor, ta == Transpose::kYes ? CblasTrans : CblasNoTrans,
                tb == Transpose::kYes ? CblasTrans : CblasNoTrans, c.rows, c.columns, k, 1.0f,
                a.data, a.columns, b.data, b.columns, 0.0f, c.data, c.columns);
  }
};
#endif

tr::Result<std::unique_ptr<Gemm>> make_openblas_gemm() {
#ifdef COMPUTE_HAVE_OPENBLAS
  return std::unique_ptr<Gemm>(std::make_unique<OpenBlasGemm>());
#else
  return tr::Error{TR_UNSUPPORTED, "OpenBLAS was not found when this program was built"};
#endif
}

}  // namespace

tr::Result<std::unique_ptr<Gemm>> make_gemm(Device& device, std::string_view name) {
  const bool on_host = device.is_host();
  const char* const fast = on_host ? "openblas" : "cublas";
  if (name == fast || name == "auto") {
    auto gemm = on_host ? make_openblas_gemm() : make_cublas_gemm(device);
    if (gemm || name != "auto") return gemm;
  }
  if (name == "ref" || name == "auto") {
    if (!on_host) return make_cuda_reference_gemm(device);
    return std::unique_ptr<Gemm>(std::make_unique<ReferenceGemm>());
  }
  return tr::Error{TR_INVALID_ARGUMENT, "no GEMM named '" + std::string(name) + "' for " +
                                            device.name() + ": auto, ref, " + fast};
}

}  // namespace compute
