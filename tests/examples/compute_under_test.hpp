// The device that compute_test.cpp and gemm_test.cpp are about: the host, or a GPU where
// COMPUTE_TEST_CUDA is defined.
#pragma once

#include <utility>
#include <vector>

#include "compute/device.hpp"

#ifdef COMPUTE_TEST_CUDA
inline constexpr const char *kDevice = "cuda", *kFastGemm = "cublas", *kOtherGemm = "openblas";
#else
inline constexpr const char *kDevice = "host", *kFastGemm = "openblas", *kOtherGemm = "cublas";
#endif

inline compute::Device& device() {
  static const auto made = std::move(compute::make_device(kDevice, 0)).value();
  return *made;
}

template <class T>
compute::Array<T> on_device(const std::vector<T>& values) {
  return std::move(compute::Array<T>::copy_of(device(), values)).value();
}
template <class T>
std::vector<T> on_host(const compute::Array<T>& array) {
  return std::move(array.download()).value();
}
