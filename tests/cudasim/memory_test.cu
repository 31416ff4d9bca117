// Memory: what is where, what is refused, what a wild kernel is told; errors on demand.
#include <chrono>
#include <cstdlib>
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx_memory.cuh"
#include "control.hpp"
#include "support.hpp"

namespace {

using namespace treering::cuda;

__global__ void poke(char* p, long offset) { p[offset] = 1; }
__global__ void poke_flag(std::uint64_t* p) { store_relaxed(p, 1); }
__global__ void read_vec(const char* p) { load_vec(reinterpret_cast<const Vec16*>(p)); }
__global__ void spin_on(const std::uint64_t* p) {
  while (load_acquire(p) == 0) spin_pause();
}

cudaMemoryType type_of(const void* p) {
  cudaPointerAttributes attributes;
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, p), cudaSuccess);
  return attributes.type;
}

TEST(Memory, KindsOfPointers) {
  char *device = nullptr, *pinned = nullptr;
  std::vector<char> plain(10000);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), 1000), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned), 1000), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(device) % 256, 0u);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, device + 999), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(type_of(pinned + 5), cudaMemoryTypeHost);
  EXPECT_EQ(type_of(plain.data()), cudaMemoryTypeUnregistered);
  ASSERT_EQ(cudaHostRegister(plain.data(), plain.size(), cudaHostRegisterMapped), cudaSuccess);
  EXPECT_EQ(type_of(plain.data() + 9999), cudaMemoryTypeHost);
  EXPECT_EQ(cudaHostRegister(plain.data() + 100, 10, 0), cudaErrorHostMemoryAlreadyRegistered);
  void* on_device = nullptr;
  EXPECT_EQ(cudaHostGetDevicePointer(&on_device, plain.data(), 0), cudaSuccess);
  EXPECT_EQ(on_device, plain.data());
  EXPECT_EQ(cudaHostUnregister(plain.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(plain.data()), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cudaFree(device + 8), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST(Memory, ACopyIsCheckedAgainstItsKindAndBounds) {
  DeviceArray<char> device(100);
  std::vector<char> host(200);
  EXPECT_EQ(cudaMemcpy(device.get(), host.data(), 100, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device.get(), host.data(), 101, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device.get(), host.data(), 10, cudaMemcpyDeviceToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), device.get(), 10, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), device.get(), 10, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemset(host.data(), 0, 10), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(Memory, BetweenDevices) {
  DeviceArray<int> here(4);
  const std::vector<int> values = {1, 2, 3, 4};
  ASSERT_EQ(cudaMemcpy(here.get(), values.data(), 16, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  {
    DeviceArray<int> there(4);
    ASSERT_EQ(cudaMemcpyPeer(there.get(), 1, here.get(), 0, 16), cudaSuccess);
    EXPECT_EQ(there.to_host(), values);
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

// Between devices 0 and 3, for as long as the object lives.
struct Faulty {
  explicit Faulty(cudasim::Between what) { cudasim::set_between(0, 3, what); }
  ~Faulty() { cudasim::set_between(0, 3, cudasim::Between::kWorks); }
};

TEST(Between, WithoutAccessNobodyIsAPeer) {
  const Faulty faulty(cudasim::Between::kNoAccess);
  int can = -1, atomics = -1;
  EXPECT_EQ(cudaDeviceCanAccessPeer(&can, 3, 0), cudaSuccess);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, 0, 3),
            cudaSuccess);
  EXPECT_EQ(atomics, 0);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(3, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceCanAccessPeer(&can, 1, 3), cudaSuccess);
  EXPECT_EQ(can, 1);
}

TEST(Between, WhatIsLostDoesNotArrive) {
  DeviceArray<int> here(4), alike(4);
  ASSERT_EQ(cudaSetDevice(3), cudaSuccess);
  DeviceArray<int> there(4);
  there.fill(0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // device 0 does not wait for device 3
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  here.fill(1);
  {
    const Faulty faulty(cudasim::Between::kLoses);
    EXPECT_EQ(cudaMemcpy(there.get(), here.get(), 16, cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(alike.get(), here.get(), 16, cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  EXPECT_EQ(alike.to_host(), std::vector<int>(4, 0x01010101));
  EXPECT_EQ(there.to_host(), std::vector<int>(4, 0));
  EXPECT_EQ(cudaMemcpy(there.get(), here.get(), 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(there.to_host(), std::vector<int>(4, 0x01010101));
}

TEST(Between, WhatHangsGoesOnWhenItIsMended) {
  DeviceArray<int> here(4);
  here.fill(1);
  ASSERT_EQ(cudaSetDevice(3), cudaSuccess);
  DeviceArray<int> there(4);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const Stream stream;
  {
    const Faulty faulty(cudasim::Between::kHangs);
    EXPECT_EQ(cudaMemcpyAsync(there.get(), here.get(), 16, cudaMemcpyDefault, stream.get()),
              cudaSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
  }
  stream.wait();
  EXPECT_EQ(there.to_host(), std::vector<int>(4, 0x01010101));
}

TEST(Memory, HasAnEnd) {
  std::size_t available = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, total + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(p, nullptr);
  ASSERT_EQ(cudaMalloc(&p, available / 2), cudaSuccess);
  std::size_t left = 0;
  ASSERT_EQ(cudaMemGetInfo(&left, &total), cudaSuccess);
  EXPECT_EQ(left, available - available / 2);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
}

TEST(Memory, StreamOrdered) {
  Stream stream;
  std::uint64_t* p = nullptr;
  ASSERT_EQ(cudaMallocAsync(reinterpret_cast<void**>(&p), 64, stream.get()), cudaSuccess);
  ASSERT_EQ(launch(poke_flag, 1, 1, 0, stream.get(), p), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(p, stream.get()), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(p, stream.get()), cudaErrorInvalidValue);
  stream.wait();
  EXPECT_EQ(type_of(p), cudaMemoryTypeUnregistered);
}

TEST(Memory, NothingIsLeft) {
  const cudasim::Live before = cudasim::live();
  {
    Stream stream;
    DeviceArray<int> array(4);
    EXPECT_EQ(cudasim::live().allocations, before.allocations + 1);
    EXPECT_EQ(cudasim::live().streams, before.streams + 1);
  }
  EXPECT_EQ(cudasim::live(), before);
}

TEST(Devices, Properties) {
  int count = 0, value = 0, device = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 4);
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 3), cudaSuccess);
  EXPECT_EQ(properties.major, 9);
  ASSERT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 3), cudaSuccess);
  EXPECT_EQ(value, properties.multiProcessorCount);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 4), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(4), cudaErrorInvalidDevice);
  char id[16];
  ASSERT_EQ(cudaDeviceGetPCIBusId(id, sizeof id, 2), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetByPCIBusId(&device, id), cudaSuccess);
  EXPECT_EQ(device, 2);
  ASSERT_EQ(blocks_per_sm(&value, poke_flag, 512, 0), cudaSuccess);
  EXPECT_EQ(value, 2);
  ASSERT_EQ(blocks_per_sm(&value, poke_flag, 32, 100 << 10), cudaSuccess);
  EXPECT_EQ(value, 2);
  std::thread([] {
    int current = 7;
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 0);
  }).join();
}

TEST(Failures, TheNthCall) {
  void* p = nullptr;
  cudasim::fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
  ASSERT_EQ(cudaMalloc(&p, 8), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&p, 8), cudaErrorMemoryAllocation);
  EXPECT_STREQ(cudaGetErrorName(cudaGetLastError()), "cudaErrorMemoryAllocation");
  EXPECT_EQ(cudaMalloc(&p, 8), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
}

// The rest needs a process of its own.
class InChild : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

void expect_exit(bool ok) { std::exit(ok ? 0 : 1); }

TEST_F(InChild, FailuresFromTheEnvironment) {
  EXPECT_EXIT(
      {
        setenv("CUDASIM_FAIL", "cudaStreamCreate:2,cudaMalloc:1:46", 1);
        void* p = nullptr;
        cudaStream_t stream;
        expect_exit(cudaStreamCreate(&stream) == cudaSuccess &&
                    cudaStreamCreate(&stream) == cudaErrorUnknown &&
                    cudaMalloc(&p, 1) == cudaErrorDevicesUnavailable);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(InChild, NoDevice) {
  EXPECT_EXIT(
      {
        setenv("CUDASIM_DEVICES", "0", 1);
        int count = 77;
        void* p = nullptr;
        expect_exit(cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 77 &&
                    cudaMalloc(&p, 1) == cudaErrorNoDevice &&
                    cudaDeviceSynchronize() == cudaErrorNoDevice);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(InChild, NoDriver) {
  EXPECT_EXIT(
      {
        setenv("CUDASIM_DEVICES", "-1", 1);
        int count = 77;
        int version = 77;
        expect_exit(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver && count == 77 &&
                    cudaDriverGetVersion(&version) == cudaSuccess && version == 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(InChild, NoPeerAccess) {
  EXPECT_EXIT(
      {
        setenv("CUDASIM_PEER", "0", 1);
        int can = 7;
        expect_exit(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess && can == 0 &&
                    cudaDeviceEnablePeerAccess(1, 0) == cudaErrorInvalidDevice);
      },
      testing::ExitedWithCode(0), "");
}

void run_wild(std::size_t bytes, long offset) {
  char* p = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&p), bytes);
  launch(poke, dim3(1), dim3(1), 0, nullptr, p, offset);
  cudaDeviceSynchronize();
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr const char* kPastEnd = "SEGV";
constexpr const char* kBefore = "SEGV";
#else
constexpr const char* kPastEnd =
    "wild access.*\n.*0 bytes past the end of an allocation of 4096 bytes, device 0\n.*poke";
constexpr const char* kBefore = "wild access.*\n.*1 bytes before an allocation of 4096 bytes";
#endif

TEST_F(InChild, PastTheEnd) { EXPECT_DEATH(run_wild(4096, 4096), kPastEnd); }
TEST_F(InChild, BeforeTheBeginning) { EXPECT_DEATH(run_wild(4096, -1), kBefore); }

TEST_F(InChild, AfterFree) {
  EXPECT_DEATH(
      {
        char* p = nullptr;
        cudaMalloc(reinterpret_cast<void**>(&p), 100);
        cudaFree(p);
        launch(poke, dim3(1), dim3(1), 0, nullptr, p, 0L);
        cudaDeviceSynchronize();
      },
      "wild access|SEGV");
}

TEST_F(InChild, Misaligned) {
  EXPECT_DEATH(
      {
        char* p = nullptr;
        cudaMalloc(reinterpret_cast<void**>(&p), 100);
        launch(read_vec, dim3(1), dim3(1), 0, nullptr, p + 8);
        cudaDeviceSynchronize();
      },
      "misaligned address.*not a multiple of 16");
}

TEST_F(InChild, PeerAccessMustBeEnabled) {
  const auto run = [](bool enable) {
    std::uint64_t* p = nullptr;
    cudaSetDevice(1);
    cudaMalloc(reinterpret_cast<void**>(&p), 8);
    cudaSetDevice(0);
    if (enable) cudaDeviceEnablePeerAccess(1, 0);
    launch(poke_flag, dim3(1), dim3(1), 0, nullptr, p);
    std::exit(cudaDeviceSynchronize() == cudaSuccess ? 0 : 1);
  };
  EXPECT_EXIT(run(true), testing::ExitedWithCode(0), "");
  EXPECT_DEATH(run(false), "memory of device 1: peer access is not enabled");
}

TEST_F(InChild, FreeingUnderAKernelThatWaitsIsAHang) {
  EXPECT_DEATH(
      {
        setenv("CUDASIM_HANG_S", "0.3", 1);
        std::uint64_t* p = nullptr;
        cudaMalloc(reinterpret_cast<void**>(&p), 8);
        cudaMemset(p, 0, 8);
        launch(spin_on, dim3(1), dim3(1), 0, nullptr, p);
        cudaFree(p);
      },
      "1 spinning \\(.*memory_test.cu:.*a host thread waits in cudaFree");
}

}  // namespace
