// Optimizer steps on the host: element by element, so that equal gradients give equal parameters.
#include <string>

#include "parallel/checks.hpp"
#include "parallel/elements.hpp"
#include "parallel/host_compute.hpp"

namespace tr::par {
namespace {

template <class A>
[[gnu::always_inline]] inline void adamw_each(const AdamWFactors<A>& f, std::int64_t count,
                                              const A* __restrict gradient, A* __restrict m,
                                              A* __restrict v, A* __restrict x) {
  for (std::int64_t i = 0; i < count; ++i) f.step(gradient[i], m[i], v[i], x[i]);
}
TR_PAR_CLONES void adamw_loop(const AdamWFactors<float>& f, std::int64_t count,
                              const float* gradient, float* m, float* v, float* x) {
  adamw_each(f, count, gradient, m, v, x);
}
TR_PAR_CLONES void adamw_loop(const AdamWFactors<double>& f, std::int64_t count,
                              const double* gradient, double* m, double* v, double* x) {
  adamw_each(f, count, gradient, m, v, x);
}

template <class A>
A* flat(const View& view) {
  return static_cast<A*>(view.data);
}

}  // namespace

Status HostCompute::adamw(const AdamWOptions& options, std::int64_t step, const View& gradient,
                          const View& m, const View& v, const View& master) {
  if (Status checked = check_step("adamw", {gradient, m, v, master}); !checked) return checked;
  if (step < 1) {
    return Error{TR_INVALID_ARGUMENT, "adamw: step " + std::to_string(step) + ": they start at 1"};
  }
  with_accumulator(master.type, [&](auto element) {
    using A = decltype(element);
    const AdamWFactors<A> factors(options, static_cast<double>(step));
    adamw_loop(factors, master.cols, flat<A>(gradient), flat<A>(m), flat<A>(v), flat<A>(master));
  });
  return {};
}

Status HostCompute::sgd(double lr, double momentum, const View& gradient, const View& velocity,
                        const View& master) {
  if (Status checked = check_step("sgd", {gradient, velocity, master}); !checked) return checked;
  with_accumulator(master.type, [&](auto element) {
    using A = decltype(element);
    const A rate = static_cast<A>(lr), keep = static_cast<A>(momentum);
    const A* g = flat<A>(gradient);
    A *v = flat<A>(velocity), *x = flat<A>(master);
    for (std::int64_t i = 0; i < master.cols; ++i) sgd_step(rate, keep, g[i], v[i], x[i]);
  });
  return {};
}

}  // namespace tr::par
