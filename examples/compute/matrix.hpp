// A view of numbers that lie in some device's memory, row after row without gaps. It owns nothing,
// and the host may look at the numbers only where the device is the host.
//
// The element type is the view's: what computes in another type is an overload.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace compute {

template <class T>
struct Matrix {
  T* data = nullptr;
  int rows = 0, columns = 0;

  std::size_t size() const { return static_cast<std::size_t>(rows) * columns; }
  // The same, to be read only.
  template <std::same_as<const T> U>
  operator Matrix<U>() const {  // NOLINT(google-explicit-constructor)
    return {data, rows, columns};
  }
};

}  // namespace compute
