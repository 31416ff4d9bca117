// cuBLAS's matrix products over OpenBLAS, as operations of a stream: 16-bit inputs are widened to
// float, results rounded once. Doubles are computed as doubles.
#include <cblas.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <memory>
#include <vector>

#include "runtime.hpp"

using namespace cudasim;

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace {

double read(const void* p, cudaDataType type, std::size_t i) {
  switch (type) {
    case CUDA_R_16F:
      return __half2float(static_cast<const __half*>(p)[i]);
    case CUDA_R_16BF:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
    case CUDA_R_64F:
      return static_cast<const double*>(p)[i];
    default:
      return static_cast<const float*>(p)[i];
  }
}
void write(void* p, cudaDataType type, std::size_t i, double result) {
  const auto value = static_cast<float>(result);
  switch (type) {
    case CUDA_R_16F:
      static_cast<__half*>(p)[i] = __float2half_rn(value);
      break;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16_rn(value);
      break;
    case CUDA_R_64F:
      static_cast<double*>(p)[i] = result;
      break;
    default:
      static_cast<float*>(p)[i] = value;
      break;
  }
}
std::size_t size_of(cudaDataType type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}
bool is_known(cudaDataType type) {
  return type == CUDA_R_64F || type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}
void gemm(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, int m, int n, int k, double alpha,
          const float* a, int lda, const float* b, int ldb, double beta, float* c) {
  cblas_sgemm(CblasColMajor, op_a, op_b, m, n, k, static_cast<float>(alpha), a, lda, b, ldb,
              static_cast<float>(beta), c, m);
}
void gemm(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, int m, int n, int k, double alpha,
          const double* a, int lda, const double* b, int ldb, double beta, double* c) {
  cblas_dgemm(CblasColMajor, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, m);
}

struct Matrix {
  const void* data;
  cudaDataType type;
  int leading;
  long long stride;
  int rows, columns;

  template <class T>
  std::vector<T> widened(int batch) const {  // column after column, without gaps
    const char* base =
        static_cast<const char*>(data) + batch * stride * static_cast<long long>(size_of(type));
    std::vector<T> out(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
    for (int c = 0; c < columns; ++c) {
      for (int r = 0; r < rows; ++r) {
        out[static_cast<std::size_t>(c) * rows + r] =
            static_cast<T>(read(base, type, static_cast<std::size_t>(c) * leading + r));
      }
    }
    return out;
  }
};

struct Product {
  cublasOperation_t op_a, op_b;
  int m, n, k, batches;
  bool is_double;
  double alpha, beta;
  Matrix a, b, c;

  void run() const {
    openblas_set_num_threads(1);
    if (is_double) {
      run_in<double>();
    } else {
      run_in<float>();
    }
  }

  template <class T>
  void run_in() const {
    const auto blas_op = [](cublasOperation_t op) {
      return op == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
    };
    for (int i = 0; i < batches; ++i) {
      const std::vector<T> left = a.widened<T>(i);
      const std::vector<T> right = b.widened<T>(i);
      // With beta 0 what C holds does not matter, not even a NaN.
      std::vector<T> result(static_cast<std::size_t>(m) * static_cast<std::size_t>(n));
      if (beta != 0) result = c.widened<T>(i);
      gemm(blas_op(op_a), blas_op(op_b), m, n, k, alpha, left.data(), a.rows, right.data(), b.rows,
           beta, result.data());
      char* out = static_cast<char*>(const_cast<void*>(c.data)) +
                  i * c.stride * static_cast<long long>(size_of(c.type));
      for (int col = 0; col < n; ++col) {
        for (int row = 0; row < m; ++row) {
          write(out, c.type, static_cast<std::size_t>(col) * c.leading + row,
                result[static_cast<std::size_t>(col) * m + row]);
        }
      }
    }
  }
};

cublasStatus_t enqueue(cublasHandle_t handle, const Product& product) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Matrix* matrices[] = {&product.a, &product.b, &product.c};
  if (product.m < 0 || product.n < 0 || product.k < 0 || product.batches < 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  for (const Matrix* matrix : matrices) {
    if (!is_known(matrix->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if ((matrix->type == CUDA_R_64F) != product.is_double) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (matrix->leading < std::max(matrix->rows, 1)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (product.m == 0 || product.n == 0) return CUBLAS_STATUS_SUCCESS;
  const cudaError_t error =
      with_stream("cublasGemm", handle->stream, [&](Lock& lock, Stream& stream) {
        return submit(lock, stream, cudaGraphNodeTypeKernel, [product] { product.run(); });
      });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (enter("cublasCreate") != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "a cuBLAS error";
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType a_type,
                                          int lda, long long stride_a, const void* b,
                                          cudaDataType b_type, int ldb, long long stride_b,
                                          const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long stride_c, int batches,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
  const bool is_double = compute == CUBLAS_COMPUTE_64F;
  const auto factor = [&](const void* p) {
    return is_double ? *static_cast<const double*>(p) : *static_cast<const float*>(p);
  };
  if (!is_double && compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
      compute != CUBLAS_COMPUTE_32F_FAST_TF32) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool plain_a = op_a == CUBLAS_OP_N;
  const bool plain_b = op_b == CUBLAS_OP_N;
  return enqueue(handle, {op_a,
                          op_b,
                          m,
                          n,
                          k,
                          batches,
                          is_double,
                          factor(alpha),
                          factor(beta),
                          {a, a_type, lda, stride_a, plain_a ? m : k, plain_a ? k : m},
                          {b, b_type, ldb, stride_b, plain_b ? k : n, plain_b ? n : k},
                          {c, c_type, ldc, stride_c, m, n}});
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void* alpha, const void* a,
                            cudaDataType a_type, int lda, const void* b, cudaDataType b_type,
                            int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algo) {
  return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, 0, b,
                                    b_type, ldb, 0, beta, c, c_type, ldc, 0, 1, compute, algo);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                              int m, int n, int k, const float* alpha, const float* a, int lda,
                              const float* b, int ldb, const float* beta, float* c, int ldc) {
  return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb,
                      beta, c, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

}  // extern "C"
