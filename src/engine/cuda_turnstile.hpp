// Turnstile: what runs one after another, whatever its streams, because it shares links.
#pragma once

#include <cuda_runtime.h>

#include "core/cuda_status.hpp"

namespace treering {

class Turnstile {
 public:
  Turnstile() = default;
  Turnstile(const Turnstile&) = delete;
  Turnstile& operator=(const Turnstile&) = delete;
  ~Turnstile() {
    if (last_ != nullptr) (void)cudaEventDestroy(last_);
  }
  Status start() {
    return cuda_status(cudaEventCreateWithFlags(&last_, cudaEventDisableTiming), "cudaEventCreate");
  }
  // Before it is enqueued. `own`: the engine's own stream; another of the caller's may have the
  // handle of one that was destroyed.
  Status order(cudaStream_t stream, cudaStream_t own) {
    if (!has_last_ || (stream == last_stream_ && stream == own)) return {};
    return cuda_status(cudaStreamWaitEvent(stream, last_, 0), "cudaStreamWaitEvent");
  }
  // After it.
  Status mark(cudaStream_t stream) {
    TR_RETURN_IF_ERROR(cuda_status(cudaEventRecord(last_, stream), "cudaEventRecord"));
    last_stream_ = stream;
    has_last_ = true;
    return {};
  }
  // Ends, because every wait of such work does.
  Status wait() {
    if (!has_last_) return {};
    return cuda_status(cudaEventSynchronize(last_), "cudaEventSynchronize");
  }

 private:
  cudaEvent_t last_ = nullptr;          // after the last
  cudaStream_t last_stream_ = nullptr;  // where that is
  bool has_last_ = false;
};

}  // namespace treering
