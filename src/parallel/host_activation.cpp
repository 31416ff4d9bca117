// Activations and dropout on the host.
#include <bit>
#include <cmath>
#include <cstdint>

#include "treering/parallel/rng.hpp"

#include "parallel/checks.hpp"
#include "parallel/host_compute.hpp"
#include "parallel/number.hpp"

namespace tr::par {
namespace {

// e^-x for x >= 0, to two units of the last place. The C library's is not vectorised. x = n ln 2 +
// r with |r| <= ln 2 / 2; adding 1.5 2^23 rounds to a whole n, which is then in the sum's last
// bits.
inline float exp_minus(float x) {
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

inline double tanh_of(double u) { return std::tanh(u); }
// To 2^-23, absolutely: it is added to 1.
inline float tanh_of(float u) {
  const float e = exp_minus(2.0f * std::abs(u));
  return std::copysign((1.0f - e) / (1.0f + e), u);
}

// Each has value(z) and backward(z, da). A NaN is not hidden.
struct Relu {
  template <class A>
  static A value(A z) {
    return z <= A{0} ? A{0} : z;
  }
  template <class A>
  static A backward(A z, A da) {
    return z <= A{0} ? A{0} : da;
  }
};

// 0.5 z (1 + tanh(u)), u = sqrt(2/pi) (z + 0.044715 z^3) (Hendrycks and Gimpel, "Gaussian error
// linear units", 2016)
struct Gelu {
  static constexpr double kScale = 0.79788456080286535588, kCubic = 0.044715;
  template <class A>
  static A tanh_at(A z) {
    return tanh_of(A(kScale) * (z + A(kCubic) * z * z * z));
  }
  template <class A>
  static A value(A z) {
    return A(0.5) * z * (A(1) + tanh_at(z));
  }
  template <class A>
  static A backward(A z, A da) {
    const A t = tanh_at(z);
    const A slope = A(kScale) * (A(1) + A(3 * kCubic) * z * z);  // of u
    return da * (A(0.5) * (A(1) + t) + A(0.5) * z * (A(1) - t * t) * slope);
  }
};

template <class Kind>
void activate_with(const View& z, const View& a) {
  with_type(z.type, [&](auto element) {
    using T = decltype(element);
    for (std::int64_t row = 0; row < z.rows; ++row) {
      const T* from = row_of<T>(z, row);
      T* to = row_of<T>(a, row);
      for (std::int64_t j = 0; j < z.cols; ++j) to[j] = narrow<T>(Kind::value(widen(from[j])));
    }
  });
}

template <class Kind>
void activate_backward_with(const View& z, const View& da, const View& dz) {
  with_type(z.type, [&](auto element) {
    using T = decltype(element);
    for (std::int64_t row = 0; row < z.rows; ++row) {
      const T *at = row_of<T>(z, row), *from = row_of<T>(da, row);
      T* to = row_of<T>(dz, row);
      for (std::int64_t j = 0; j < z.cols; ++j) {
        to[j] = narrow<T>(Kind::backward(widen(at[j]), widen(from[j])));
      }
    }
  });
}

}  // namespace

Status HostCompute::activate(Activation kind, const View& z, const View& a) {
  if (Status checked = check_same("activate", {z, a}); !checked) return checked;
  if (kind == Activation::kRelu) activate_with<Relu>(z, a);
  if (kind == Activation::kGelu) activate_with<Gelu>(z, a);
  return kind == Activation::kNone && z.data != a.data ? copy(z, a) : Status();
}

Status HostCompute::activate_backward(Activation kind, const View& z, const View& da,
                                      const View& dz) {
  if (Status checked = check_same("activate_backward", {z, da, dz}); !checked) return checked;
  if (kind == Activation::kRelu) activate_backward_with<Relu>(z, da, dz);
  if (kind == Activation::kGelu) activate_backward_with<Gelu>(z, da, dz);
  return kind == Activation::kNone && da.data != dz.data ? copy(da, dz) : Status();
}

Status HostCompute::dropout(const DropoutKey& key, const View& x, const View& y) {
  if (Status checked = check_dropout(key, x, y); !checked) return checked;
  // Of 24 random bits, as many as the probability asks for are below this.
  const auto dropped_below = static_cast<std::uint64_t>(std::ldexp(key.probability, 24));
  with_type(x.type, [&](auto element) {
    using T = decltype(element);
    const auto kept_times = static_cast<Accumulator<T>>(1.0 / (1.0 - key.probability));
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const T* from = row_of<T>(x, row);
      T* to = row_of<T>(y, row);
      const auto first =
          static_cast<std::uint64_t>((key.first_row + row) * key.global_cols + key.first_col);
      for (std::int64_t j = 0; j < x.cols; ++j) {
        const std::uint64_t bits =
            random_bits(key.seed, key.stream, first + static_cast<std::uint64_t>(j)) >> 40;
        to[j] = bits < dropped_below ? T{} : narrow<T>(widen(from[j]) * kept_times);
      }
    }
  });
  return {};
}

}  // namespace tr::par
