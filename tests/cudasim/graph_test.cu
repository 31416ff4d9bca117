// Stream capture and graphs.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <vector>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx_memory.cuh"
#include "support.hpp"

namespace {

using namespace treering::cuda;

__global__ void add(int* p, int value) {
  if (thread_id() == 0) *p += value;
}
__global__ void times(int* p, int value) {
  if (thread_id() == 0) *p *= value;
}
// Two kernels that need each other: their branches must run at the same time.
__global__ void meet(std::uint64_t* mine, const std::uint64_t* other) {
  const std::uint64_t round = load_relaxed(mine) + 1;
  store_release(mine, round);
  while (load_acquire(other) < round) spin_pause();
}

class Graph : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cudaEventCreate(&event_), cudaSuccess); }
  void TearDown() override {
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_TRUE(graph_ == nullptr || cudaGraphDestroy(graph_) == cudaSuccess);
    EXPECT_TRUE(exec_ == nullptr || cudaGraphExecDestroy(exec_) == cudaSuccess);
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(a_.get(), mode), cudaSuccess);
  }
  void finish() {
    ASSERT_EQ(cudaStreamEndCapture(a_.get(), &graph_), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec_, graph_, 0), cudaSuccess);
  }
  void order(cudaStream_t first, cudaStream_t then) {
    ASSERT_EQ(cudaEventRecord(event_, first), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(then, event_, 0), cudaSuccess);
  }

  Stream a_, b_;
  cudaEvent_t event_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

TEST_F(Graph, CaptureRunsNothingAndReplayRunsAll) {
  DeviceArray<int> value(1);
  value.fill(0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  int calls = 0;
  begin();
  ASSERT_EQ(launch(add, 1, 32, 0, a_.get(), value.get(), 5), cudaSuccess);
  ASSERT_EQ(launch(times, 1, 32, 0, a_.get(), value.get(), 2), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(
                a_.get(), [](void* p) { ++*static_cast<int*>(p); }, &calls),
            cudaSuccess);
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  ASSERT_EQ(cudaStreamGetCaptureInfo(a_.get(), &status, &id), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_NE(id, 0u);
  finish();
  EXPECT_EQ(calls, 0);
  size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph_, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 3u);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cudaGraphLaunch(exec_, a_.get()), cudaSuccess);
  a_.wait();
  EXPECT_EQ(value.to_host()[0], ((0 + 5) * 2 + 5) * 2 * 2 + 5 * 2);
  EXPECT_EQ(calls, 3);
}

TEST_F(Graph, AnEventBringsAnotherStreamIn) {
  DeviceArray<int> value(1);
  DeviceArray<std::uint64_t> flags(2);
  value.fill(0);
  flags.fill(0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  begin();
  ASSERT_EQ(launch(add, 1, 32, 0, a_.get(), value.get(), 1), cudaSuccess);
  order(a_.get(), b_.get());
  ASSERT_EQ(launch(meet, 1, 1, 0, a_.get(), flags.get(), flags.get() + 1), cudaSuccess);
  ASSERT_EQ(launch(meet, 1, 1, 0, b_.get(), flags.get() + 1, flags.get()), cudaSuccess);
  ASSERT_EQ(launch(times, 1, 32, 0, b_.get(), value.get(), 10), cudaSuccess);
  order(b_.get(), a_.get());
  ASSERT_EQ(launch(add, 1, 32, 0, a_.get(), value.get(), 3), cudaSuccess);
  finish();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(exec_, b_.get()), cudaSuccess);
  b_.wait();
  EXPECT_EQ(value.to_host()[0], ((0 + 1) * 10 + 3 + 1) * 10 + 3);
  cudaStreamCaptureStatus status;
  ASSERT_EQ(cudaStreamIsCapturing(b_.get(), &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
}

TEST_F(Graph, ABranchThatDoesNotComeBackIsRefused) {
  begin();
  order(a_.get(), b_.get());
  ASSERT_EQ(launch(add, 1, 32, 0, b_.get(), nullptr, 1), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(a_.get(), &graph_), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph_, nullptr);
}

TEST_F(Graph, WaitingForACaptureBreaksIt) {
  begin();
  EXPECT_EQ(cudaStreamSynchronize(a_.get()), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(a_.get(), &graph_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(Graph, AllocationDuringACaptureIsUnsafe) {
  void* p = nullptr;
  begin(cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaMalloc(&p, 8), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(a_.get(), &graph_), cudaErrorStreamCaptureInvalidated);
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaMalloc(&p, 8), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(a_.get(), &graph_), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
  begin(cudaStreamCaptureModeGlobal);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&p, 8), cudaSuccess);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(a_.get(), &graph_), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
}

TEST_F(Graph, TheLegacyStreamCannotTakePart) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
  Stream blocking(cudaStreamDefault);
  ASSERT_EQ(cudaStreamBeginCapture(blocking.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(launch(add, 1, 32, 0, nullptr, nullptr, 1), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(cudaStreamEndCapture(blocking.get(), &graph_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(Graph, AnEventOfAnEarlierTimeCannotBeWaitedFor) {
  ASSERT_EQ(cudaEventRecord(event_, b_.get()), cudaSuccess);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(a_.get(), event_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(cudaStreamEndCapture(a_.get(), &graph_), cudaErrorStreamCaptureInvalidated);
}

}  // namespace
