// CUDA's errors in words.
#pragma once

#include <cuda_runtime.h>
#include <string>

#include "treering/result.hpp"

namespace tr::par {

inline Status cuda_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // it is told here: the next call must not find it again
  return Error{TR_SYSTEM_ERROR, std::string(what) + ": " + cudaGetErrorString(error)};
}

}  // namespace tr::par
