// The order between a GPU's two streams.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <vector>

#include "compute/backend.hpp"

namespace {

// A product that takes a while; then its last element, copied on the side stream.
TEST(CudaDevice, ForkPutsTheSideStreamAfterWhatWasAsked) {
  constexpr int kSize = 128;
  auto backend = std::move(compute::make_backend("cuda", 0, "ref")).value();
  const std::vector<float> ones(kSize * kSize, 1.0f);
  const auto a = std::move(compute::Array<float>::copy_of(*backend.device, ones)).value();
  auto c = std::move(compute::Array<float>::copy_of(*backend.device, ones)).value();
  const auto no = compute::Transpose::kNo;
  const compute::Matrix<const float> from{a.data(), kSize, kSize};
  backend.gemm->multiply(no, from, no, from, {c.data(), kSize, kSize});
  backend.device->fork();
  float last = 0;
  const auto side = static_cast<cudaStream_t>(backend.device->side_stream());
  ASSERT_EQ(cudaMemcpyAsync(&last, c.end() - 1, sizeof last, cudaMemcpyDeviceToHost, side),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(side), cudaSuccess);
  EXPECT_EQ(last, kSize);
}

TEST(CudaDevice, TheFirstErrorIsToldOnceByWhoWaits) {
  auto device = std::move(compute::make_device("cuda", 0)).value();
  device->clear(nullptr, 16);
  const auto status = device->synchronize();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message.rfind("clearing memory: ", 0), 0u) << status.error().message;
  EXPECT_TRUE(device->synchronize().ok());
}

TEST(CudaDevice, RanksOfAHostTakeTurns) {
  int devices = 0, current = -1;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  ASSERT_TRUE(compute::make_device("cuda", devices + 1).ok());
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1 % devices);
}

}  // namespace
