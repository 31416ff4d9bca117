// The product with a fixed order. Both factors are packed, widened to the accumulator's type:
// op(b) in panels of a few columns, op(a) in strips of a few rows, so that the inner loop reads
// both side by side and keeps a tile of sums in registers.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "parallel/gemm.hpp"
#include "parallel/number.hpp"

namespace tr::par {
namespace {

constexpr int kRows = 6;          // 6 x 64 bytes of sums stay in registers
constexpr int kVectorBytes = 32;  // half a row of a tile
template <class A>
constexpr int kCols = 2 * kVectorBytes / sizeof(A);

// sums[r][j] = sum over k of strip[k][r] panel[k][j], k ascending.
template <class A>
[[gnu::always_inline]] inline void sum_tile(std::int64_t k, const A* strip, const A* panel,
                                            A* sums) {
  using Vector [[gnu::vector_size(kVectorBytes), gnu::aligned(alignof(A)), gnu::may_alias]] = A;
  Vector low[kRows] = {}, high[kRows] = {};
  for (std::int64_t i = 0; i < k; ++i) {
    const Vector* b = reinterpret_cast<const Vector*>(panel + i * kCols<A>);
    for (int r = 0; r < kRows; ++r) {
      const A x = strip[i * kRows + r];
      low[r] += x * b[0];
      high[r] += x * b[1];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    Vector* to = reinterpret_cast<Vector*>(sums + r * kCols<A>);
    to[0] = low[r];
    to[1] = high[r];
  }
}
TR_PAR_CLONES void tile(std::int64_t k, const float* strip, const float* panel, float* sums) {
  sum_tile(k, strip, panel, sums);
}
TR_PAR_CLONES void tile(std::int64_t k, const double* strip, const double* panel, double* sums) {
  sum_tile(k, strip, panel, sums);
}

// Packs `count` lines of x, whose element (line, i) is at line * line_stride + i * k_stride, into
// [k][width]; lines beyond `count` are zero.
template <class T, class A>
void pack(const T* x, std::int64_t line_stride, std::int64_t k_stride, std::int64_t k, int count,
          int width, A* to) {
  if (count < width) std::fill_n(to, k * width, A{});
  if (line_stride == 1) {
    for (std::int64_t i = 0; i < k; ++i) {
      for (int line = 0; line < count; ++line) to[i * width + line] = widen(x[i * k_stride + line]);
    }
  } else {
    for (int line = 0; line < count; ++line) {
      const T* from = x + line * line_stride;
      for (std::int64_t i = 0; i < k; ++i) to[i * width + line] = widen(from[i * k_stride]);
    }
  }
}

template <class T, class A>
void pack_all(const T* x, std::int64_t line_stride, std::int64_t k_stride, std::int64_t k,
              std::int64_t lines, int width, std::vector<A>& to) {
  to.resize(static_cast<std::size_t>((lines + width - 1) / width * width * k));
  for (std::int64_t line = 0; line < lines; line += width) {
    const int count = static_cast<int>(std::min<std::int64_t>(width, lines - line));
    pack(x + line * line_stride, line_stride, k_stride, k, count, width, to.data() + line * k);
  }
}

class ReferenceGemm : public Gemm {
 public:
  const char* name() const override { return "ref"; }
  bool outputs_are_independent() const override { return true; }

  void multiply(const Product& product) override {
    with_type(product.a.type, [&](auto element) {
      using T = decltype(element);
      if constexpr (std::is_same_v<T, double>) {
        run<T>(product, strips64_, panels64_);
      } else {
        run<T>(product, strips32_, panels32_);
      }
    });
  }

 private:
  template <class T, class A>
  static void run(const Product& p, std::vector<A>& strips, std::vector<A>& panels) {
    const std::int64_t m = p.m(), n = p.n(), k = p.k();
    const bool a_is_turned = p.ta == Transpose::kYes, b_is_turned = p.tb == Transpose::kYes;
    const auto* a = static_cast<const T*>(p.a.data);
    const auto* b = static_cast<const T*>(p.b.data);
    const std::int64_t a_line = a_is_turned ? 1 : p.a.stride, a_k = a_is_turned ? p.a.stride : 1;
    const std::int64_t b_line = b_is_turned ? p.b.stride : 1, b_k = b_is_turned ? 1 : p.b.stride;
    if (k > 0) {
      pack_all(a, a_line, a_k, k, m, kRows, strips);
      pack_all(b, b_line, b_k, k, n, kCols<A>, panels);
    }
    // A panel stays in the cache while all strips go by.
    for (std::int64_t j = 0; j < n; j += kCols<A>) {
      for (std::int64_t i = 0; i < m; i += kRows) {
        A sums[kRows * kCols<A>];
        tile(k, strips.data() + i * k, panels.data() + j * k, sums);
        const View to{p.c.at(i, j), std::min<std::int64_t>(kRows, m - i),
                      std::min<std::int64_t>(kCols<A>, n - j), p.c.stride, p.c.type};
        store_sums(sums, kCols<A>, to, p.update);
      }
    }
  }

  std::vector<float> strips32_, panels32_;
  std::vector<double> strips64_, panels64_;
};

}  // namespace

void store_sums(const void* sums, std::int64_t sums_stride, const View& c, Update update) {
  with_type(c.type, [&](auto element) {
    using T = decltype(element);
    using A = Accumulator<T>;
    for (std::int64_t row = 0; row < c.rows; ++row) {
      const A* from = static_cast<const A*>(sums) + row * sums_stride;
      T* to = row_of<T>(c, row);
      if (update == Update::kOverwrite) {
        for (std::int64_t j = 0; j < c.cols; ++j) to[j] = narrow<T>(from[j]);
      } else {
        for (std::int64_t j = 0; j < c.cols; ++j) to[j] = narrow<T>(widen(to[j]) + from[j]);
      }
    }
  });
}

std::unique_ptr<Gemm> make_reference_gemm() { return std::make_unique<ReferenceGemm>(); }

}  // namespace tr::par
