// In place of src/parallel/cuda_load_blas.cpp: the emulator's cuBLAS, with which the program is
// linked.
#include <cublas_v2.h>

#include "parallel/cuda_blas.hpp"

namespace tr::par {
namespace {

static_assert(CUBLAS_OP_N == CudaBlas::kPlain && CUBLAS_OP_T == CudaBlas::kTransposed);
static_assert(CUBLAS_STATUS_SUCCESS == CudaBlas::kSuccess && CUDA_R_32F == CudaBlas::kFloat32);
static_assert(CUDA_R_64F == CudaBlas::kFloat64 && CUDA_R_16F == CudaBlas::kFloat16 &&
              CUDA_R_16BF == CudaBlas::kBFloat16);
static_assert(CUBLAS_COMPUTE_32F == CudaBlas::kComputeFloat32 &&
              CUBLAS_COMPUTE_64F == CudaBlas::kComputeFloat64 &&
              CUBLAS_GEMM_DEFAULT == CudaBlas::kDefaultAlgorithm);
static_assert(sizeof(cublasOperation_t) == sizeof(int) && sizeof(cudaDataType) == sizeof(int));

// That of cublas_v2.h; another overload takes the place of `compute` as a cudaDataType.
using Gemm = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                                const void*, const void*, cudaDataType, int, const void*,
                                cudaDataType, int, const void*, void*, cudaDataType, int,
                                cublasComputeType_t, cublasGemmAlgo_t);

}  // namespace

Result<CudaBlas> load_cuda_blas() {
  CudaBlas blas;
  blas.create = reinterpret_cast<decltype(blas.create)>(cublasCreate_v2);
  blas.destroy = reinterpret_cast<decltype(blas.destroy)>(cublasDestroy_v2);
  blas.set_stream = reinterpret_cast<decltype(blas.set_stream)>(cublasSetStream_v2);
  blas.words = reinterpret_cast<decltype(blas.words)>(cublasGetStatusString);
  blas.gemm = reinterpret_cast<decltype(blas.gemm)>(static_cast<Gemm>(cublasGemmEx));
  return blas;
}

}  // namespace tr::par
