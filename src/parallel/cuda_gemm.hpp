// Matrix products of a GPU (compute.hpp: multiply). Shapes and types were checked; they are put on
// the stream for which the object was made.
#pragma once

#include <cuda_runtime.h>
#include <memory>

#include "treering/parallel/compute.hpp"

#include "parallel/gemm.hpp"

namespace tr::par {

class CudaGemm {
 public:
  virtual ~CudaGemm() = default;
  virtual const char* name() const = 0;
  virtual bool outputs_are_independent() const = 0;
  virtual Status multiply(const Product& product) = 0;
};

std::unique_ptr<CudaGemm> make_cuda_reference_gemm(cudaStream_t stream);
// TR_UNSUPPORTED: there is no cuBLAS. `memory` is for products that are not written at once.
Result<std::unique_ptr<CudaGemm>> make_cublas_gemm(cudaStream_t stream, Memory& memory);

// c = or += sums, a contiguous matrix of c's accumulator type.
Status cuda_store_sums(cudaStream_t stream, const View& sums, const View& c, Update update);

}  // namespace tr::par
