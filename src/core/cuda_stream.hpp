// A CUDA stream of the library's own: work on it waits for nothing else on the device, the caller's
// default stream included.
#pragma once

#include <cstddef>
#include <cuda_runtime.h>
#include <utility>

#include "core/cuda_status.hpp"

namespace treering {

class CudaStream {
 public:
  static Result<CudaStream> make() {
    CudaStream s;
    TR_RETURN_IF_ERROR(cuda_status(cudaStreamCreateWithFlags(&s.stream_, cudaStreamNonBlocking),
                                   "cudaStreamCreateWithFlags"));
    return s;
  }
  // Its work goes before that of other streams, and never queues up behind theirs.
  static Result<CudaStream> make_urgent() {
    CudaStream s;
    int least = 0, greatest = 0;
    TR_RETURN_IF_ERROR(cuda_status(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                                   "cudaDeviceGetStreamPriorityRange"));
    TR_RETURN_IF_ERROR(
        cuda_status(cudaStreamCreateWithPriority(&s.stream_, cudaStreamNonBlocking, greatest),
                    "cudaStreamCreateWithPriority"));
    return s;
  }
  CudaStream() = default;
  CudaStream(CudaStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  CudaStream& operator=(CudaStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~CudaStream() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  cudaStream_t get() const { return stream_; }
  // Is done when the stream is; `from` and `to` are device memory or pinned.
  Status start_copy(void* to, const void* from, std::size_t bytes) const {
    return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpy");
  }
  Status start_fill(void* memory, int value, std::size_t bytes) const {
    return cuda_status(cudaMemsetAsync(memory, value, bytes, stream_), "cudaMemset");
  }
  Result<bool> is_done() const {
    const cudaError_t error = cudaStreamQuery(stream_);
    if (error == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    TR_RETURN_IF_ERROR(cuda_status(error, "cudaStreamQuery"));
    return true;
  }
  Status wait() const {
    return cuda_status(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  // Done when it returns. Any two memories that CUDA knows, or the caller's.
  Status copy(void* to, const void* from, std::size_t bytes) const {
    TR_RETURN_IF_ERROR(start_copy(to, from, bytes));
    return cuda_status(cudaStreamSynchronize(stream_), "cudaMemcpy");
  }
  Status clear(void* memory, std::size_t bytes) const {
    TR_RETURN_IF_ERROR(start_fill(memory, 0, bytes));
    return cuda_status(cudaStreamSynchronize(stream_), "cudaMemset");
  }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace treering
