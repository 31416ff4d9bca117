// What is used of cuBLAS. The library is opened at run time (cuda_load_blas.cpp), so nothing of it
// is needed to build this, and a program starts where there is none. Declared below is that part of
// its public interface; it is the same in versions 12 and 13, whose enums are ints.
#pragma once

#include "treering/result.hpp"

namespace tr::par {

struct CudaBlas {
  using Handle = void*;
  static constexpr int kSuccess = 0;
  static constexpr int kPlain = 0, kTransposed = 1;  // cublasOperation_t
  static constexpr int kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBFloat16 = 14;  // cudaDataType_t
  static constexpr int kComputeFloat32 = 68, kComputeFloat64 = 70;  // cublasComputeType_t: no TF32
  static constexpr int kDefaultAlgorithm = -1;                      // cublasGemmAlgo_t

  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*set_stream)(Handle, void* stream) = nullptr;
  const char* (*words)(int status) = nullptr;
  // c = alpha op(a) op(b) + beta c, matrices column after column; op(a) is m x k, op(b) k x n.
  int (*gemm)(Handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
              int a_type, int a_leading, const void* b, int b_type, int b_leading, const void* beta,
              void* c, int c_type, int c_leading, int compute, int algorithm) = nullptr;
};

Result<CudaBlas> load_cuda_blas();

}  // namespace tr::par
