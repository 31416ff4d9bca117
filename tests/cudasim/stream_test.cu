// Streams, events, host functions, the default stream: in which order things happen.
#include <atomic>
#include <chrono>
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx_memory.cuh"
#include "support.hpp"

namespace {

using namespace treering::cuda;
using namespace std::chrono_literals;

// Runs until the host sets the flag.
__global__ void wait_for(const std::uint64_t* flag) {
  while (load_acquire(flag) == 0) spin_pause();
}
__global__ void set(std::uint64_t* p, std::uint64_t value) { store_release(p, value); }

// A flag in pinned memory, and a kernel on a stream that runs until open() is called.
class Gate {
 public:
  Gate() {
    EXPECT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&flag_), 8, cudaHostAllocMapped), cudaSuccess);
    *flag_ = 0;
  }
  ~Gate() {
    open();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(flag_), cudaSuccess);
  }
  void close_stream(cudaStream_t stream) {
    EXPECT_EQ(launch(wait_for, 1, 32, 0, stream, flag_), cudaSuccess);
  }
  void open() { __atomic_store_n(flag_, 1, __ATOMIC_RELEASE); }

 private:
  std::uint64_t* flag_ = nullptr;
};

void add_letter(std::string* text, char letter) { *text += letter; }
struct Letter {
  std::string* text;
  char letter;
};
void CUDART_CB write_letter(void* data) {
  const auto* letter = static_cast<Letter*>(data);
  add_letter(letter->text, letter->letter);
}

TEST(Streams, HostFunctionsRunInOrder) {
  std::string text;
  std::vector<Letter> letters;
  for (const char c : std::string("abcdef")) letters.push_back({&text, c});
  Stream stream;
  for (Letter& letter : letters) {
    ASSERT_EQ(cudaLaunchHostFunc(stream.get(), write_letter, &letter), cudaSuccess);
  }
  stream.wait();
  EXPECT_EQ(text, "abcdef");
}

TEST(Streams, AHostFunctionMustNotCallCuda) {
  cudaError_t error = cudaSuccess;
  Stream stream;
  const auto function = [](void* data) {
    void* p = nullptr;
    *static_cast<cudaError_t*>(data) = cudaMalloc(&p, 8);
  };
  ASSERT_EQ(cudaLaunchHostFunc(stream.get(), function, &error), cudaSuccess);
  stream.wait();
  EXPECT_EQ(error, cudaErrorNotPermitted);
}

TEST(Streams, KernelsOfTwoStreamsRunAtTheSameTime) {
  Stream a, b;
  DeviceArray<std::uint64_t> flag(1);
  flag.fill(0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(launch(wait_for, 1, 32, 0, a.get(), flag.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(a.get()), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  ASSERT_EQ(launch(set, 1, 1, 0, b.get(), flag.get(), 1), cudaSuccess);
  a.wait();
  EXPECT_EQ(cudaStreamQuery(a.get()), cudaSuccess);
}

TEST(Streams, KernelsOfOneStreamDoNot) {
  Stream stream;
  Gate gate;
  gate.close_stream(stream.get());
  DeviceArray<std::uint64_t> value(1);
  value.fill(0);
  ASSERT_EQ(launch(set, 1, 1, 0, stream.get(), value.get(), 7), cudaSuccess);
  EXPECT_EQ(value.to_host()[0], 0u);
  gate.open();
  stream.wait();
  EXPECT_EQ(value.to_host()[0], 7u);
}

TEST(Streams, AnEventOrdersTwoStreams) {
  Stream a, b;
  Gate gate;
  cudaEvent_t event;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);  // never recorded: done
  gate.close_stream(a.get());
  ASSERT_EQ(cudaEventRecord(event, a.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(b.get(), event, 0), cudaSuccess);
  std::string text;
  Letter letter = {&text, 'x'};
  ASSERT_EQ(cudaLaunchHostFunc(b.get(), write_letter, &letter), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(cudaStreamQuery(b.get()), cudaErrorNotReady);
  gate.open();
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  b.wait();
  EXPECT_EQ(text, "x");
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
}

TEST(Streams, EventsMeasureTime) {
  Stream stream;
  cudaEvent_t begin, end;
  ASSERT_EQ(cudaEventCreate(&begin), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(begin, stream.get()), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(
                stream.get(), [](void*) { std::this_thread::sleep_for(20ms); }, nullptr),
            cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, stream.get()), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  float ms = 0;
  ASSERT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
  EXPECT_GE(ms, 19.0f);
  EXPECT_EQ(cudaEventDestroy(begin), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
}

// The legacy stream waits for blocking streams, and they for it.
TEST(DefaultStream, WaitsForBlockingStreams) {
  Stream blocking(cudaStreamDefault);
  Gate gate;
  gate.close_stream(blocking.get());
  DeviceArray<std::uint64_t> value(1);
  Stream other;
  ASSERT_EQ(cudaMemsetAsync(value.get(), 0, 8, other.get()), cudaSuccess);
  other.wait();
  ASSERT_EQ(launch(set, 1, 1, 0, nullptr, value.get(), 3), cudaSuccess);  // behind the gate
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(value.to_host()[0], 3u);
}

TEST(DefaultStream, BlockingStreamsWaitForIt) {
  Stream blocking(cudaStreamDefault), free_stream;
  Gate gate;
  gate.close_stream(nullptr);
  std::string text;
  Letter b = {&text, 'b'}, f = {&text, 'f'};
  ASSERT_EQ(cudaLaunchHostFunc(blocking.get(), write_letter, &b), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(free_stream.get(), write_letter, &f), cudaSuccess);
  free_stream.wait();  // does not care
  EXPECT_EQ(cudaStreamQuery(blocking.get()), cudaErrorNotReady);
  gate.open();
  blocking.wait();
  EXPECT_EQ(text, "fb");
}

TEST(DefaultStream, EachDeviceHasOne) {
  Gate gate;
  gate.close_stream(nullptr);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
}

TEST(DefaultStream, PerThread) {
  Stream stream;
  Gate gate;
  gate.close_stream(cudaStreamPerThread);
  EXPECT_EQ(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
  std::thread([] { EXPECT_EQ(cudaStreamQuery(cudaStreamPerThread), cudaSuccess); }).join();
}

TEST(Streams, WaitForAllThatIsFreed) {
  Stream stream;
  Gate gate;
  gate.close_stream(stream.get());
  void* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 100), cudaSuccess);
  std::atomic<bool> freed{false};
  std::thread thread([&] {
    EXPECT_EQ(cudaFree(p), cudaSuccess);
    freed = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(freed);  // cudaFree waits for the kernel
  gate.open();
  thread.join();
}

TEST(Streams, Attributes) {
  cudaStream_t stream;
  int least = 7, greatest = 7, priority = 7, device = 7;
  unsigned flags = 7;
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  EXPECT_LT(greatest, least);
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaStreamGetPriority(stream, &priority), cudaSuccess);
  EXPECT_EQ(cudaStreamGetDevice(stream, &device), cudaSuccess);
  EXPECT_EQ(cudaStreamGetFlags(stream, &flags), cudaSuccess);
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(device, 2);
  EXPECT_EQ(flags, unsigned{cudaStreamNonBlocking});
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
}

}  // namespace
