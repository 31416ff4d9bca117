// What is computed at one element, written once for host loops and kernels.
//
// A kernel has the host's bits: no multiplication and addition are fused on either, and no order is
// left to chance. Only exp, log and tanh of <cmath> are each device's own.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "treering/parallel/compute.hpp"
#include "treering/parallel/rng.hpp"

#include "parallel/number.hpp"

namespace tr::par {

// e^-x for x >= 0, to two units of the last place. The C library's is not vectorised. x = n ln 2 +
// r with |r| <= ln 2 / 2; adding 1.5 2^23 rounds to a whole n, which is then in the sum's last
// bits.
TR_PAR_HD inline float exp_minus(float x) {
  constexpr float kRounder = 0x1.8p23f;
  x = x > 87.0f ? 87.0f : x;  // further on, subnormals
  const float sum = x * 1.44269504f + kRounder;
  const float n = sum - kRounder;
  const float r = (n * 0.693359375f - x) + n * -2.12194440e-4f;  // ln 2 in two parts
  float p = 1.0f / 5040 * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((127u << 23) - (std::bit_cast<std::uint32_t>(sum) << 23));
}

TR_PAR_HD inline double tanh_of(double u) { return std::tanh(u); }
// To 2^-23, absolutely: it is added to 1.
TR_PAR_HD inline float tanh_of(float u) {
  const float e = exp_minus(2.0f * std::abs(u));
  return std::copysign((1.0f - e) / (1.0f + e), u);
}

// Each has value(z) and backward(z, da). A NaN is not hidden.
struct Relu {
  template <class A>
  TR_PAR_HD static A value(A z) {
    return z <= A{0} ? A{0} : z;
  }
  template <class A>
  TR_PAR_HD static A backward(A z, A da) {
    return z <= A{0} ? A{0} : da;
  }
};

// 0.5 z (1 + tanh(u)), u = sqrt(2/pi) (z + 0.044715 z^3) (Hendrycks and Gimpel, "Gaussian error
// linear units", 2016)
struct Gelu {
  static constexpr double kScale = 0.79788456080286535588, kCubic = 0.044715;
  template <class A>
  TR_PAR_HD static A tanh_at(A z) {
    return tanh_of(A(kScale) * (z + A(kCubic) * z * z * z));
  }
  template <class A>
  TR_PAR_HD static A value(A z) {
    return A(0.5) * z * (A(1) + tanh_at(z));
  }
  template <class A>
  TR_PAR_HD static A backward(A z, A da) {
    const A t = tanh_at(z);
    const A slope = A(kScale) * (A(1) + A(3 * kCubic) * z * z);  // of u
    return da * (A(0.5) * (A(1) + t) + A(0.5) * z * (A(1) - t * t) * slope);
  }
};

// A DropoutKey, ready to be asked.
template <class A>
struct Dropper {
  std::uint64_t seed, stream;
  std::int64_t first_row, first_col, global_cols;
  std::uint64_t dropped_below;  // of 24 random bits, as many as the probability asks for
  A kept_times;

  explicit Dropper(const DropoutKey& key)
      : seed(key.seed),
        stream(key.stream),
        first_row(key.first_row),
        first_col(key.first_col),
        global_cols(key.global_cols),
        dropped_below(static_cast<std::uint64_t>(std::ldexp(key.probability, 24))),
        kept_times(static_cast<A>(1.0 / (1.0 - key.probability))) {}

  // The place of a row's first element.
  TR_PAR_HD std::uint64_t place(std::int64_t row) const {
    return static_cast<std::uint64_t>((first_row + row) * global_cols + first_col);
  }
  template <class T>
  TR_PAR_HD T at(std::uint64_t place, T x) const {
    const std::uint64_t bits = random_bits(seed, stream, place) >> 40;
    return bits < dropped_below ? T{} : narrow<T>(widen(x) * kept_times);
  }
};

template <class A>
struct AdamWFactors {
  A beta1, beta2, keep, rate, root, eps;

  // The corrections for the moments' start at zero are folded into rate and root.
  AdamWFactors(const AdamWOptions& options, double steps)
      : beta1(static_cast<A>(options.beta1)),
        beta2(static_cast<A>(options.beta2)),
        keep(static_cast<A>(1.0 - options.lr * options.weight_decay)),
        rate(static_cast<A>(options.lr / (1.0 - std::pow(options.beta1, steps)))),
        root(static_cast<A>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, steps)))),
        eps(static_cast<A>(options.eps)) {}

  TR_PAR_HD void step(A g, A& m, A& v, A& x) const {
    m = beta1 * m + (A(1) - beta1) * g;
    v = beta2 * v + (A(1) - beta2) * g * g;
    x = keep * x - rate * m / (std::sqrt(v) * root + eps);
  }
};

template <class A>
TR_PAR_HD inline void sgd_step(A rate, A keep, A g, A& v, A& x) {
  v = keep * v + g;
  x -= rate * v;
}

// to = or += sum.
template <class T>
TR_PAR_HD inline void store(T& to, Accumulator<T> sum, Update update) {
  to = narrow<T>(update == Update::kAdd ? widen(to) + sum : sum);
}

}  // namespace tr::par
