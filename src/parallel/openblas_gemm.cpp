#include "parallel/gemm.hpp"

#ifdef TR_HAVE_OPENBLAS
#include <algorithm>
#include <cblas.h>
#include <vector>

#include "parallel/number.hpp"

namespace tr::par {
namespace {

void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const float* a, int lda,
          const float* b, int ldb, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1.0f, a, lda, b, ldb, 0.0f, c, ldc);
}
void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const double* a, int lda,
          const double* b, int ldb, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1.0, a, lda, b, ldb, 0.0, c, ldc);
}

CBLAS_TRANSPOSE blas(Transpose transpose) {
  return transpose == Transpose::kYes ? CblasTrans : CblasNoTrans;
}

// BLAS takes no leading dimension of 0.
int leading(std::int64_t stride) { return static_cast<int>(std::max<std::int64_t>(stride, 1)); }

class OpenBlasGemm : public Gemm {
 public:
  OpenBlasGemm() { openblas_set_num_threads(1); }
  const char* name() const override { return "openblas"; }
  bool outputs_are_independent() const override { return false; }

  void multiply(const Product& product) override {
    if (product.c.is_empty()) return;
    with_type(product.a.type, [&](auto element) {
      using T = decltype(element);
      if constexpr (std::is_same_v<T, double>) {
        run(product, static_cast<const T*>(product.a.data), product.a.stride,
            static_cast<const T*>(product.b.data), product.b.stride, sums64_);
      } else if constexpr (std::is_same_v<T, float>) {
        run(product, static_cast<const T*>(product.a.data), product.a.stride,
            static_cast<const T*>(product.b.data), product.b.stride, sums32_);
      } else {
        widen_matrix<T>(product.a, a_);
        widen_matrix<T>(product.b, b_);
        run(product, a_.data(), product.a.cols, b_.data(), product.b.cols, sums32_);
      }
    });
  }

 private:
  template <class T>
  static void widen_matrix(const View& from, std::vector<float>& to) {
    to.resize(static_cast<std::size_t>(from.elements()));
    for (std::int64_t row = 0; row < from.rows; ++row) {
      const T* x = row_of<T>(from, row);
      float* y = to.data() + row * from.cols;
      for (std::int64_t j = 0; j < from.cols; ++j) y[j] = widen(x[j]);
    }
  }

  // Straight into c where nothing is added or rounded. Else by way of `sums`: what beta = 1 adds
  // to, and when, is not ours to say.
  template <class A>
  static void run(const Product& p, const A* a, std::int64_t a_stride, const A* b,
                  std::int64_t b_stride, std::vector<A>& sums) {
    const bool is_direct = p.update == Update::kOverwrite && size_of(p.c.type) == sizeof(A);
    if (!is_direct) sums.resize(static_cast<std::size_t>(p.c.elements()));
    A* to = is_direct ? static_cast<A*>(p.c.data) : sums.data();
    const std::int64_t stride = is_direct ? p.c.stride : p.n();
    if (p.k() == 0) {
      for (std::int64_t row = 0; row < p.m(); ++row) std::fill_n(to + row * stride, p.n(), A{});
    } else {
      gemm(blas(p.ta), blas(p.tb), static_cast<int>(p.m()), static_cast<int>(p.n()),
           static_cast<int>(p.k()), a, leading(a_stride), b, leading(b_stride), to,
           leading(stride));
    }
    if (!is_direct) store_sums(to, stride, p.c, p.update);
  }

  std::vector<float> a_, b_, sums32_;
  std::vector<double> sums64_;
};

}  // namespace

std::unique_ptr<Gemm> make_openblas_gemm() { return std::make_unique<OpenBlasGemm>(); }
bool have_openblas() { return true; }

}  // namespace tr::par
#else
namespace tr::par {

std::unique_ptr<Gemm> make_openblas_gemm() { return nullptr; }
bool have_openblas() { return false; }

}  // namespace tr::par
#endif
