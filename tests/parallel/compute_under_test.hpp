// The device that compute_test.cpp and gemm_test.cpp are about: the host, or a GPU where
// TR_TEST_CUDA is defined.
#pragma once

#include <memory>
#include <string_view>

#include "treering/parallel/compute.hpp"

namespace partest {

#ifdef TR_TEST_CUDA
inline constexpr bool kIsOnGpu = true;
inline constexpr const char* kFastGemm = "cublas";
inline tr::Result<std::unique_ptr<tr::par::Compute>> make_compute(std::string_view gemm) {
  return tr::par::make_cuda_compute(gemm, 0);
}
#else
inline constexpr bool kIsOnGpu = false;
inline constexpr const char* kFastGemm = "openblas";
inline tr::Result<std::unique_ptr<tr::par::Compute>> make_compute(std::string_view gemm) {
  return tr::par::make_host_compute(gemm);
}
#endif

}  // namespace partest
