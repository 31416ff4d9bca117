// Starting kernels; with ptx*.cuh all that differs between a GPU and the emulator of tests/cudasim,
// which cannot read <<<>>>.
#pragma once

#include <cstddef>
#include <cuda_runtime.h>
#include <tuple>
#include <type_traits>

namespace treering::cuda {

// Runs kernel(args...) on `stream`. Arguments are copied, as they are, to the device.
template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream, const Args&... args) {
  static_assert(sizeof...(Params) == sizeof...(Args), "a kernel takes all of its arguments");
  static_assert((std::is_trivially_copyable_v<Params> && ...),
                "kernel arguments are copied as bytes");
  static_assert((sizeof(Params) + ... + 0) <= 32764, "kernel arguments are too long");
#ifdef __CUDACC__
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
#else
  return cudasim::launch(reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, stream,
                         [kernel, copies = std::tuple<Params...>(static_cast<Params>(args)...)] {
                           std::apply(kernel, copies);
                         });
#endif
}

// Dynamic shared memory beyond 48 KiB must be asked for once per kernel and device.
template <class... Params>
cudaError_t allow_shared(void (*kernel)(Params...), std::size_t bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

// Otherwise a kernel is loaded at its first launch, which may wait for all that runs on the device.
template <class... Params>
cudaError_t load(void (*kernel)(Params...)) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

// How many such blocks one multiprocessor holds at a time. A grid that waits for itself must fit.
template <class... Params>
cudaError_t blocks_per_sm(int* out, void (*kernel)(Params...), int threads,
                          std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(out, reinterpret_cast<const void*>(kernel),
                                                       threads, shared_bytes);
}

}  // namespace treering::cuda
