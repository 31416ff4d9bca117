// Element by element on a GPU; and the product with a fixed order, which is slow and has the
// host's bits.
#include <string>

#include "parallel/checks.hpp"
#include "parallel/cuda_compute.hpp"
#include "parallel/cuda_loop.cuh"
#include "parallel/elements.hpp"
#include "parallel/try.hpp"

namespace tr::par {
namespace {

template <class T>
TR_PAR_HD T& at(const View& view, std::int64_t row, std::int64_t col) {
  return row_of<T>(view, row)[col];
}

template <class T>
struct Fill {
  View to;
  T value;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t col) const {
    at<T>(to, row, col) = value;
  }
};

template <class From, class To>
struct Copy {
  View from, to;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t col) const {
    const From x = at<From>(from, row, col);
    if constexpr (std::is_same_v<From, To>) {
      at<To>(to, row, col) = x;
    } else {
      at<To>(to, row, col) = narrow<To>(static_cast<Accumulator<To>>(widen(x)));
    }
  }
};

template <class T>
struct Scale {
  View x;
  Accumulator<T> by;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t col) const {
    at<T>(x, row, col) = narrow<T>(widen(at<T>(x, row, col)) * by);
  }
};

// To every row of x, if `from` is one row.
template <class T, class From>
struct Add {
  View from, x;
  bool is_row;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t col) const {
    const From summand = at<From>(from, is_row ? 0 : row, col);
    T& to = at<T>(x, row, col);
    to = narrow<T>(widen(to) + static_cast<Accumulator<T>>(widen(summand)));
  }
};

template <class T, class Kind>
struct Activate {
  View z, a;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t col) const {
    at<T>(a, row, col) = narrow<T>(Kind::value(widen(at<T>(z, row, col))));
  }
};
template <class T, class Kind>
struct ActivateBackward {
  View z, da, dz;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t col) const {
    at<T>(dz, row, col) =
        narrow<T>(Kind::backward(widen(at<T>(z, row, col)), widen(at<T>(da, row, col))));
  }
};

template <class T>
struct Drop {
  Dropper<Accumulator<T>> dropper;
  View x, y;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t col) const {
    at<T>(y, row, col) =
        dropper.at(dropper.place(row) + static_cast<std::uint64_t>(col), at<T>(x, row, col));
  }
};

template <class A>
struct AdamW {
  AdamWFactors<A> factors;
  View gradient, m, v, master;
  TR_PAR_HD void operator()(std::int64_t, std::int64_t i) const {
    factors.step(at<A>(gradient, 0, i), at<A>(m, 0, i), at<A>(v, 0, i), at<A>(master, 0, i));
  }
};
template <class A>
struct Sgd {
  A rate, keep;
  View gradient, velocity, master;
  TR_PAR_HD void operator()(std::int64_t, std::int64_t i) const {
    sgd_step(rate, keep, at<A>(gradient, 0, i), at<A>(velocity, 0, i), at<A>(master, 0, i));
  }
};

// c(row, col) = or += the sum of op(a)(row, i) op(b)(i, col) over i = 0, 1, ...
template <class T, class C>
struct Sum {
  Product p;
  std::int64_t k, a_row, a_k, b_col, b_k;  // and steps between elements
  explicit Sum(const Product& product) : p(product), k(product.k()) {
    const bool a_is_turned = p.ta == Transpose::kYes, b_is_turned = p.tb == Transpose::kYes;
    a_row = a_is_turned ? 1 : p.a.stride;
    a_k = a_is_turned ? p.a.stride : 1;
    b_col = b_is_turned ? p.b.stride : 1;
    b_k = b_is_turned ? 1 : p.b.stride;
  }
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t col) const {
    const T* a = row_of<T>(p.a, 0) + row * a_row;
    const T* b = row_of<T>(p.b, 0) + col * b_col;
    Accumulator<T> sum{};
    for (std::int64_t i = 0; i < k; ++i) sum += widen(a[i * a_k]) * widen(b[i * b_k]);
    store(at<C>(p.c, row, col), sum, p.update);
  }
};

class CudaReferenceGemm final : public CudaGemm {
 public:
  explicit CudaReferenceGemm(cudaStream_t stream) : stream_(stream) {}
  const char* name() const override { return "ref"; }
  bool outputs_are_independent() const override { return true; }
  Status multiply(const Product& p) override {
    return with_type(p.a.type, [&](auto element) {
      using T = decltype(element);
      using A = Accumulator<T>;
      return p.c.type == p.a.type ? cuda_loop(stream_, p.m(), p.n(), Sum<T, T>(p))
                                  : cuda_loop(stream_, p.m(), p.n(), Sum<T, A>(p));
    });
  }

 private:
  cudaStream_t stream_;
};

template <class T>
struct StoreSum {
  View sums, c;
  Update update;
  TR_PAR_HD void operator()(std::int64_t row, std::int64_t col) const {
    store(at<T>(c, row, col), at<Accumulator<T>>(sums, row, col), update);
  }
};

}  // namespace

std::unique_ptr<CudaGemm> make_cuda_reference_gemm(cudaStream_t stream) {
  return std::make_unique<CudaReferenceGemm>(stream);
}

Status cuda_store_sums(cudaStream_t stream, const View& sums, const View& c, Update update) {
  return with_type(c.type, [&](auto element) {
    return cuda_loop(stream, c.rows, c.cols, StoreSum<decltype(element)>{sums, c, update});
  });
}

Status CudaCompute::fill(const View& to, double value) {
  TRY(check_views("fill", {to}));
  return with_type(to.type, [&](auto element) {
    using T = decltype(element);
    const T stored = narrow<T>(static_cast<Accumulator<T>>(value));
    return cuda_loop(stream_, to.rows, to.cols, Fill<T>{to, stored});
  });
}

Status CudaCompute::copy(const View& from, const View& to) {
  TRY(check_same("copy", {from, to}, false));
  return with_type(from.type, [&](auto from_element) {
    return with_type(to.type, [&](auto to_element) {
      return cuda_loop(stream_, to.rows, to.cols,
                       Copy<decltype(from_element), decltype(to_element)>{from, to});
    });
  });
}

Status CudaCompute::add(const View& from, const View& to) {
  TRY(check_same("add", {from, to}));
  return with_type(to.type, [&](auto element) {
    using T = decltype(element);
    return cuda_loop(stream_, to.rows, to.cols, Add<T, T>{from, to, false});
  });
}

Status CudaCompute::add_row(const View& row, const View& x) {
  TRY(check_row("add_row", row, x));
  return with_type(x.type, [&](auto element) {
    using T = decltype(element);
    using A = Accumulator<T>;
    return row.type == x.type ? cuda_loop(stream_, x.rows, x.cols, Add<T, T>{row, x, true})
                              : cuda_loop(stream_, x.rows, x.cols, Add<T, A>{row, x, true});
  });
}

Status CudaCompute::scale(const View& x, double factor) {
  TRY(check_views("scale", {x}));
  return with_type(x.type, [&](auto element) {
    using T = decltype(element);
    return cuda_loop(stream_, x.rows, x.cols, Scale<T>{x, static_cast<Accumulator<T>>(factor)});
  });
}

Status CudaCompute::activate(Activation kind, const View& z, const View& a) {
  TRY(check_same("activate", {z, a}));
  if (kind == Activation::kNone) return z.data == a.data ? Status() : copy(z, a);
  return with_type(z.type, [&](auto element) {
    using T = decltype(element);
    return kind == Activation::kRelu ? cuda_loop(stream_, z.rows, z.cols, Activate<T, Relu>{z, a})
                                     : cuda_loop(stream_, z.rows, z.cols, Activate<T, Gelu>{z, a});
  });
}

Status CudaCompute::activate_backward(Activation kind, const View& z, const View& da,
                                      const View& dz) {
  TRY(check_same("activate_backward", {z, da, dz}));
  if (kind == Activation::kNone) return da.data == dz.data ? Status() : copy(da, dz);
  return with_type(z.type, [&](auto element) {
    using T = decltype(element);
    return kind == Activation::kRelu
               ? cuda_loop(stream_, z.rows, z.cols, ActivateBackward<T, Relu>{z, da, dz})
               : cuda_loop(stream_, z.rows, z.cols, ActivateBackward<T, Gelu>{z, da, dz});
  });
}

Status CudaCompute::dropout(const DropoutKey& key, const View& x, const View& y) {
  TRY(check_dropout(key, x, y));
  return with_type(x.type, [&](auto element) {
    using T = decltype(element);
    return cuda_loop(stream_, x.rows, x.cols, Drop<T>{Dropper<Accumulator<T>>(key), x, y});
  });
}

Status CudaCompute::adamw(const AdamWOptions& options, std::int64_t step, const View& gradient,
                          const View& m, const View& v, const View& master) {
  TRY(check_step("adamw", {gradient, m, v, master}));
  if (step < 1) {
    return Error{TR_INVALID_ARGUMENT, "adamw: step " + std::to_string(step) + ": they start at 1"};
  }
  return with_accumulator(master.type, [&](auto element) {
    using A = decltype(element);
    const AdamWFactors<A> factors(options, static_cast<double>(step));
    return cuda_loop(stream_, 1, master.cols, AdamW<A>{factors, gradient, m, v, master});
  });
}

Status CudaCompute::sgd(double lr, double momentum, const View& gradient, const View& velocity,
                        const View& master) {
  TRY(check_step("sgd", {gradient, velocity, master}));
  return with_accumulator(master.type, [&](auto element) {
    using A = decltype(element);
    return cuda_loop(
        stream_, 1, master.cols,
        Sgd<A>{static_cast<A>(lr), static_cast<A>(momentum), gradient, velocity, master});
  });
}

}  // namespace tr::par
