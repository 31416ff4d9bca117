// Streams that write words and wait for them.
#include <cuda.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "algos/cuda/launch.cuh"
#include "support.hpp"
#include "tests/cudasim/control.hpp"

namespace {

using Word = std::uint64_t;

template <class Function>
Function* entry(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found),
            cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointSuccess) << name;
  return reinterpret_cast<Function*>(function);
}

CUdeviceptr at(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

CUresult write(const Stream& stream, const Word* word, Word value) {
  return entry<decltype(cuStreamWriteValue64)>("cuStreamWriteValue64")(stream.get(), at(word),
                                                                       value, 0);
}
CUresult wait(const Stream& stream, const Word* word, Word value, unsigned how) {
  return entry<decltype(cuStreamWaitValue64)>("cuStreamWaitValue64")(stream.get(), at(word), value,
                                                                     how);
}

// Is everything on the stream done soon, or not for 20 ms?
bool goes_on(const Stream& stream) {
  for (int i = 0; i < 20; ++i) {
    if (cudaStreamQuery(stream.get()) == cudaSuccess) return true;
    (void)cudaGetLastError();
    usleep(1000);
  }
  return false;
}

TEST(MemOps, WaitsForTheValueAndOrdersCopies) {
  DeviceArray<Word> words(2);
  DeviceArray<int> from(1000), to(1000);
  words.fill(0);
  from.fill(7);
  to.fill(1);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Stream a, b;
  ASSERT_EQ(wait(b, words.get(), 5, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  ASSERT_EQ(cudaMemcpyAsync(to.get(), from.get(), 4000, cudaMemcpyDefault, b.get()), cudaSuccess);
  ASSERT_EQ(write(b, words.get() + 1, 9), CUDA_SUCCESS);
  for (const Word wrong : {Word{4}, Word{6}, ~Word{0}}) {
    ASSERT_EQ(write(a, words.get(), wrong), CUDA_SUCCESS);
    a.wait();
    EXPECT_FALSE(goes_on(b)) << wrong;
  }
  EXPECT_EQ(to.to_host()[999], 0x01010101);
  ASSERT_EQ(write(a, words.get(), 5), CUDA_SUCCESS);
  ASSERT_EQ(wait(a, words.get() + 1, 9, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  a.wait();
  EXPECT_EQ(to.to_host()[999], 0x07070707);
}

TEST(MemOps, EachConditionHolds) {
  struct Row {
    unsigned how;
    Word value, not_yet, now;
  };
  const Row rows[] = {
      {CU_STREAM_WAIT_VALUE_GEQ, 7, 6, 8},
      {CU_STREAM_WAIT_VALUE_GEQ, 2, ~Word{0}, 3},  // cyclic: -1 comes before 2
      {CU_STREAM_WAIT_VALUE_AND, 6, 9, 4},
      {CU_STREAM_WAIT_VALUE_NOR, ~Word{1}, 1, 0},
  };
  DeviceArray<Word> word(1);
  for (const Row& row : rows) {
    Stream a, b;
    ASSERT_EQ(write(a, word.get(), row.not_yet), CUDA_SUCCESS);
    a.wait();
    ASSERT_EQ(wait(b, word.get(), row.value, row.how), CUDA_SUCCESS);
    EXPECT_FALSE(goes_on(b)) << row.how << " " << row.value;
    ASSERT_EQ(write(a, word.get(), row.now), CUDA_SUCCESS);
    b.wait();
  }
}

TEST(MemOps, HalfWordsToo) {
  DeviceArray<std::uint32_t> words(2);
  words.fill(0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Stream a, b;
  ASSERT_EQ(entry<decltype(cuStreamWaitValue32)>("cuStreamWaitValue32")(
                b.get(), at(words.get() + 1), 3, CU_STREAM_WAIT_VALUE_EQ),
            CUDA_SUCCESS);
  ASSERT_EQ(entry<decltype(cuStreamWriteValue32)>("cuStreamWriteValue32")(
                a.get(), at(words.get() + 1), 3, 0),
            CUDA_SUCCESS);
  b.wait();
  EXPECT_EQ(words.to_host()[0], 0u);
}

TEST(MemOps, ABatchRunsInItsOrder) {
  DeviceArray<Word> words(3);
  words.fill(0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CUstreamBatchMemOpParams ops[4] = {};
  for (CUstreamBatchMemOpParams& op : ops) op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  for (int i = 0; i < 3; ++i) {
    ops[i].writeValue.address = at(words.get() + i);
    ops[i].writeValue.value64 = 5;
  }
  ops[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  ops[3].writeValue.address = at(words.get());
  Stream a, b;
  auto* const batch = entry<decltype(cuStreamBatchMemOp)>("cuStreamBatchMemOp");
  ASSERT_EQ(batch(a.get(), 4, ops, 0), CUDA_SUCCESS);
  EXPECT_FALSE(goes_on(a));
  EXPECT_EQ(words.to_host(), (std::vector<Word>{5, 0, 0}));
  ASSERT_EQ(write(b, words.get() + 1, 5), CUDA_SUCCESS);
  a.wait();
  EXPECT_EQ(words.to_host(), (std::vector<Word>{0, 5, 5}));
  EXPECT_EQ(batch(a.get(), 256, ops, 0), CUDA_ERROR_INVALID_VALUE);
  ops[0].operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
  EXPECT_EQ(batch(a.get(), 1, ops, 0), CUDA_ERROR_NOT_SUPPORTED);
}

// The host lets a stream go on by storing to memory that both see.
TEST(MemOps, TheHostCanStoreTheWord) {
  Word* word = nullptr;
  ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&word), 8, cudaHostAllocMapped), cudaSuccess);
  *word = 0;
  Stream stream;
  ASSERT_EQ(wait(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  EXPECT_FALSE(goes_on(stream));
  __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  stream.wait();
  EXPECT_EQ(cudaFreeHost(word), cudaSuccess);
}

TEST(MemOps, AGraphPlaysThemAgain) {
  DeviceArray<Word> words(2);
  words.fill(0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Stream stream, other;
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(wait(stream, words.get(), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  ASSERT_EQ(write(stream, words.get(), 0), CUDA_SUCCESS);
  ASSERT_EQ(write(stream, words.get() + 1, 1), CUDA_SUCCESS);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  std::size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 3u);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cudaGraphLaunch(exec, stream.get()), cudaSuccess);
    EXPECT_FALSE(goes_on(stream)) << i;
    ASSERT_EQ(write(other, words.get(), 1), CUDA_SUCCESS);
    ASSERT_EQ(wait(other, words.get() + 1, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
    ASSERT_EQ(write(other, words.get() + 1, 0), CUDA_SUCCESS);
    other.wait();
    stream.wait();
  }
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST(MemOps, RefusesWhatADriverWould) {
  DeviceArray<Word> words(1);
  Stream stream;
  const auto* bytes = reinterpret_cast<const std::byte*>(words.get());
  const Word on_stack = 0;
  EXPECT_EQ(write(stream, reinterpret_cast<const Word*>(bytes + 4), 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(write(stream, words.get() + 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(write(stream, &on_stack, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(wait(stream, words.get(), 1, CU_STREAM_WAIT_VALUE_FLUSH), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  {
    Stream stranger;  // of a device without access to the word's
    EXPECT_EQ(write(stranger, words.get(), 1), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
    EXPECT_EQ(write(stranger, words.get(), 1), CUDA_SUCCESS);
    stranger.wait();
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(MemOps, ADeviceMayHaveNone) {
  DeviceArray<Word> words(1);
  Stream stream;
  cudasim::set_mem_ops(false);
  int can = 1;
  EXPECT_EQ(entry<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute")(
                &can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(write(stream, words.get(), 1), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(wait(stream, words.get(), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_ERROR_NOT_SUPPORTED);
  cudasim::set_mem_ops(true);
  EXPECT_EQ(entry<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute")(
                &can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
}

__global__ void nothing() {}

TEST(MemOps, AreNoLaunches) {
  DeviceArray<Word> word(1);
  Stream stream;
  const std::uint64_t before = cudasim::launches();
  ASSERT_EQ(write(stream, word.get(), 1), CUDA_SUCCESS);
  ASSERT_EQ(wait(stream, word.get(), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  stream.wait();
  EXPECT_EQ(cudasim::launches(), before);
  ASSERT_EQ(treering::cuda::launch(nothing, 1, 32, 0, stream.get()), cudaSuccess);
  stream.wait();
  EXPECT_EQ(cudasim::launches(), before + 1);
}

void wait_in_vain() {
  setenv("CUDASIM_HANG_S", "0.2", 1);
  DeviceArray<Word> word(1);
  word.fill(0);
  const Stream stream;
  (void)wait(stream, word.get(), 1, CU_STREAM_WAIT_VALUE_EQ);
  (void)cudaStreamSynchronize(stream.get());
}
TEST(MemOpsDeathTest, AWordThatNobodyWritesIsAHang) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(wait_in_vain(),
               "hang: a stream waits for a word that nobody writes.*\n"
               "(.*\n)*.*a stream waits for the word at 0x[0-9a-f]+");
}

}  // namespace
