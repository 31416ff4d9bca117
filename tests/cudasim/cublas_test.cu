// Matrix products with small integers: exact in every type.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>
#include <vector>

#include "support.hpp"

namespace {

constexpr int kM = 5, kN = 3, kK = 4;

int a_at(int row, int col) { return row + 2 * col - 3; }
int b_at(int row, int col) { return 3 * row - col + 1; }
int expected(int row, int col) {
  int sum = 0;
  for (int k = 0; k < kK; ++k) sum += a_at(row, k) * b_at(k, col);
  return sum;
}

class Blas : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cublasCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasSetStream(handle_, stream_.get()), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(cublasDestroy(handle_), CUBLAS_STATUS_SUCCESS); }

  // C = 2 * A * B (or of A and B stored transposed) + beta * C, column-major, C with gaps.
  template <class In, class Out>
  void check(cudaDataType in, cudaDataType out, bool transposed, float beta) {
    const int lda = transposed ? kK : kM, ldb = transposed ? kN : kK, ldc = kM + 2;
    std::vector<In> a(kM * kK), b(kK * kN);
    std::vector<Out> c(ldc * kN, Out(7.0f));
    for (int i = 0; i < kM; ++i) {
      for (int k = 0; k < kK; ++k)
        a[transposed ? k + i * lda : i + k * lda] = In(float(a_at(i, k)));
    }
    for (int k = 0; k < kK; ++k) {
      for (int j = 0; j < kN; ++j)
        b[transposed ? j + k * ldb : k + j * ldb] = In(float(b_at(k, j)));
    }
    DeviceArray<In> da(a.size()), db(b.size());
    DeviceArray<Out> dc(c.size());
    const auto put = [](auto& to, const auto& from) {
      ASSERT_EQ(
          cudaMemcpy(to.get(), from.data(), from.size() * sizeof from[0], cudaMemcpyHostToDevice),
          cudaSuccess);
    };
    put(da, a);
    put(db, b);
    put(dc, c);
    const float alpha = 2;
    const cublasOperation_t op = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    ASSERT_EQ(cublasGemmEx(handle_, op, op, kM, kN, kK, &alpha, da.get(), in, lda, db.get(), in,
                           ldb, &beta, dc.get(), out, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_SUCCESS);
    stream_.wait();
    const std::vector<Out> result = dc.to_host();
    for (int j = 0; j < kN; ++j) {
      for (int i = 0; i < ldc; ++i) {
        const float want = i < kM ? 2.0f * float(expected(i, j)) + beta * 7.0f : 7.0f;
        EXPECT_EQ(float(result[i + j * ldc]), want) << i << ',' << j;
      }
    }
  }

  Stream stream_;
  cublasHandle_t handle_ = nullptr;
};

TEST_F(Blas, Float) {
  check<float, float>(CUDA_R_32F, CUDA_R_32F, false, 0);
  check<float, float>(CUDA_R_32F, CUDA_R_32F, true, 1);
}
TEST_F(Blas, Half) {
  check<__half, __half>(CUDA_R_16F, CUDA_R_16F, false, 0);
  check<__half, float>(CUDA_R_16F, CUDA_R_32F, true, 2);
}
TEST_F(Blas, Bfloat16) {
  check<__nv_bfloat16, __nv_bfloat16>(CUDA_R_16BF, CUDA_R_16BF, false, 1);
  check<__nv_bfloat16, float>(CUDA_R_16BF, CUDA_R_32F, true, 0);
}

TEST_F(Blas, Batches) {
  const std::vector<float> a = {1, 2, 3}, b = {4, 5, 6};
  DeviceArray<float> da(3), db(3), dc(3);
  ASSERT_EQ(cudaMemcpy(da.get(), a.data(), 12, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(db.get(), b.data(), 12, cudaMemcpyHostToDevice), cudaSuccess);
  const float one = 1, zero = 0;
  ASSERT_EQ(
      cublasGemmStridedBatchedEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, da.get(),
                                 CUDA_R_32F, 1, 1, db.get(), CUDA_R_32F, 1, 1, &zero, dc.get(),
                                 CUDA_R_32F, 1, 1, 3, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      CUBLAS_STATUS_SUCCESS);
  stream_.wait();
  EXPECT_EQ(dc.to_host(), (std::vector<float>{4, 10, 18}));
}

}  // namespace
