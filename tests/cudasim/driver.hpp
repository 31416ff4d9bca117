// What the functions of CUDA's driver begin with, as api() and locked_api() do for the runtime's.
#pragma once

#include <cuda.h>

#include "runtime.hpp"

namespace cudasim {

inline CUresult driver_error(cudaError_t error) {  // the numbers are the same where both exist
  switch (error) {
    case cudaErrorInsufficientDriver:
      return CUDA_ERROR_NOT_INITIALIZED;
    case cudaErrorUnknown:
      return CUDA_ERROR_UNKNOWN;
    default:
      return static_cast<CUresult>(error);
  }
}

template <class F>
CUresult driver(const char* name, F f) {
  const cudaError_t error = enter(name);
  if (error != cudaSuccess) return driver_error(error);
  Lock lock(runtime().mutex);
  return f(lock);
}

}  // namespace cudasim
