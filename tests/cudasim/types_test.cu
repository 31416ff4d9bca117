// NVIDIA's small floats compute in the emulator with the operators and conversions of their
// headers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>
#include <vector>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx_memory.cuh"
#include "support.hpp"

namespace {

using namespace treering::cuda;

template <class T>
__global__ void sum_and_scale(const float* a, const float* b, T* out, int count) {
  for (int i = thread_id(); i < count; i += block_threads()) {
    out[i] = T(T(a[i]) + T(b[i])) * T(2.0f);
  }
}
template <class T>
__global__ void through_float(const float* a, const float* b, T* out, int count) {
  for (int i = thread_id(); i < count; i += block_threads()) {
    out[i] = T((float(T(a[i])) + float(T(b[i]))) * 2.0f);
  }
}

// Small integers and halves are exact in all types.
template <class T>
void check(void (*kernel)(const float*, const float*, T*, int)) {
  const std::vector<float> a = {0, 1, -2, 0.5f, 3}, b = {1, 1, 4, 1.5f, -3};
  const int count = static_cast<int>(a.size());
  DeviceArray<float> left(a.size()), right(a.size());
  DeviceArray<T> out(a.size());
  ASSERT_EQ(cudaMemcpy(left.get(), a.data(), a.size() * 4, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(right.get(), b.data(), b.size() * 4, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(launch(kernel, 1, 32, 0, nullptr, left.get(), right.get(), out.get(), count),
            cudaSuccess);
  const std::vector<T> host = out.to_host();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(float(host[i]), (a[i] + b[i]) * 2) << i;
}

TEST(Types, Half) { check<__half>(sum_and_scale<__half>); }
TEST(Types, Bfloat16) { check<__nv_bfloat16>(sum_and_scale<__nv_bfloat16>); }
TEST(Types, Fp8) {
  check<__nv_fp8_e4m3>(through_float<__nv_fp8_e4m3>);
  check<__nv_fp8_e5m2>(through_float<__nv_fp8_e5m2>);
}

__global__ void round_half(const float* in, __half* out) { *out = __float2half_rn(*in); }

TEST(Types, RoundToNearestEven) {
  DeviceArray<float> in(1);
  DeviceArray<__half> out(1);
  const float value = 2049.0f;  // between 2048 and 2050
  ASSERT_EQ(cudaMemcpy(in.get(), &value, 4, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(launch(round_half, 1, 1, 0, nullptr, in.get(), out.get()), cudaSuccess);
  EXPECT_EQ(float(out.to_host()[0]), 2048.0f);
}

}  // namespace
