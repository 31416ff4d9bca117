// CUDA's errors in the library's words.
#pragma once

#include <cuda_runtime.h>
#include <string>
#include <string_view>

#include "core/status.hpp"

namespace treering {

inline Status cuda_status(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // it is reported here: the caller's next call must not find it again
  return Status(Code::kSystem, std::string(what) + ": " + cudaGetErrorString(error) + " (" +
                                   cudaGetErrorName(error) + ")");
}

}  // namespace treering
