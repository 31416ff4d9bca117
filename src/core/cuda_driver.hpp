// Functions of CUDA's driver, found at run time: a library that is linked to the driver would not
// start where there is none.
#pragma once

#include <cuda.h>
#include <string>

#include "core/cuda_status.hpp"

namespace treering {

// `since`: the version of CUDA whose form of the function is wanted, 1000 major + 10 minor.
template <class F>
Status find_driver_function(const char* name, int since, F*& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult state = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      name, &found, static_cast<unsigned>(since), cudaEnableDefault, &state);
#else
  (void)since;
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &state);
#endif
  TR_RETURN_IF_ERROR(cuda_status(error, std::string("looking for the driver's ") + name));
  if (state != cudaDriverEntryPointSuccess || found == nullptr) {
    return unsupported(std::string("this driver of CUDA has no ") + name);
  }
  function = reinterpret_cast<F*>(found);
  return {};
}

}  // namespace treering
