// StreamWords: words in memory that streams write and wait for, without a kernel (CUDA's stream
// memory operations).
#pragma once

#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>
#include <vector>

#include "core/status.hpp"

namespace treering {

class StreamWords {
 public:
  // What a stream does next, in this order.
  class Batch {
   public:
    // Everything that the stream did before is seen by who sees the value.
    void write(const std::uint64_t* word, std::uint64_t value);
    // Until the word has exactly this value.
    void wait(const std::uint64_t* word, std::uint64_t value);

   private:
    friend class StreamWords;
    void add(CUstreamBatchMemOpType type, const std::uint64_t* word, std::uint64_t value,
             unsigned flags);
    std::vector<CUstreamBatchMemOpParams> ops_;
  };

  // An error that says what is missing where the driver or the device cannot do it.
  static Result<StreamWords> make(int device);
  // Enqueues the batch and empties it.
  Status submit(Batch& batch, cudaStream_t stream) const;

 private:
  using Function = CUresult(CUDAAPI*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);
  Function batch_mem_op_ = nullptr;
};

}  // namespace treering
