// Activations and dropout on the host.
#include <cstdint>

#include "parallel/checks.hpp"
#include "parallel/elements.hpp"
#include "parallel/host_compute.hpp"

namespace tr::par {
namespace {

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
  with_type(x.type, [&](auto element) {
    using T = decltype(element);
    const Dropper<Accumulator<T>> dropper(key);
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const T* from = row_of<T>(x, row);
      T* to = row_of<T>(y, row);
      const std::uint64_t first = dropper.place(row);
      for (std::int64_t j = 0; j < x.cols; ++j) {
        to[j] = dropper.at(first + static_cast<std::uint64_t>(j), from[j]);
      }
    }
  });
  return {};
}

}  // namespace tr::par
