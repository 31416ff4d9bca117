// Which calls copy engines serve, their order with kernels, and graphs.
#include <string>
#include <unistd.h>

#include "cuda/copies.hpp"
#include "cudasim/control.hpp"

namespace treering::test {
namespace {

TEST_F(CopiesOf, SeveralDevices) {
  const Env by_copies("TR_CUDA_COPY_ENGINE", "2");
  make(4, 4 * 5000, 2);
  each([&](int r) {
    in(r).fill(static_cast<std::uint8_t>(10 + r));
    EXPECT_EQ(all_gather(r, 5000, nullptr).code, TR_SUCCESS);
    EXPECT_TRUE(is_gathered(r, 5000, 10));
  });
}

TEST_F(CopiesOf, LongPartsByThemselves) {
  constexpr std::uint64_t kLong = 1 << 20;
  make(2, 2 * kLong);
  each([&](int r) { EXPECT_TR(tr_comm_set_option(comm(r), TR_OPT_COPY_ENGINE, 1)); });
  const auto launches_of = [&](std::uint64_t count) {
    const std::uint64_t before = cudasim::launches();
    each([&](int r) {
      in(r).fill(static_cast<std::uint8_t>(30 + r));
      const Answer a = all_gather(r, count, nullptr);
      EXPECT_EQ(a.code, TR_SUCCESS) << a;
      EXPECT_TRUE(is_gathered(r, count, 30));
    });
    return cudasim::launches() - before;
  };
  EXPECT_EQ(launches_of(kLong - 1), 2u);
  EXPECT_EQ(launches_of(kLong), 0u);
  EXPECT_TR(tr_comm_set_algorithm(comm(0), "all_gather", "ring"));
  EXPECT_TR(tr_comm_set_algorithm(comm(1), "all_gather", "ring"));
  EXPECT_EQ(launches_of(kLong), 2u);
  // Memory that is not registered is a kernel's.
  EXPECT_TR(tr_comm_set_algorithm(comm(0), "all_gather", "auto"));
  EXPECT_TR(tr_comm_set_algorithm(comm(1), "all_gather", "auto"));
  const std::uint64_t before = cudasim::launches();
  each([&](int r) {
    const DeviceArray<std::uint8_t> a(kLong, 1), b(2 * kLong, 0);
    EXPECT_TR(tr_all_gather(a.get(), b.get(), kLong, TR_UINT8, comm(r), nullptr));
    EXPECT_EQ(b.wrong(1), 0u);
  });
  EXPECT_EQ(cudasim::launches() - before, 2u);
}

TEST_F(CopiesOf, AreExplained) {
  make(2, 64);
  const auto explained = [&] {
    const char* words = nullptr;
    EXPECT_TR(tr_comm_explain(comm(0), &words));
    return std::string(words);
  };
  EXPECT_NE(explained().find("no copies by copy engines: not asked for (TR_OPT_COPY_ENGINE)"),
            std::string::npos);
  EXPECT_TR(tr_comm_set_option(comm(0), TR_OPT_COPY_ENGINE, 1));
  EXPECT_NE(explained().find("from 1048576 bytes: window, copy engines (registered, and long: all "
                             "multiprocessors stay free)"),
            std::string::npos)
      << explained();
  EXPECT_EQ(answer(tr_comm_set_option(comm(0), TR_OPT_COPY_ENGINE, 3)).code, TR_INVALID_ARGUMENT);
}

TEST_F(CopiesOf, ADeviceWithoutStreamMemoryOperationsAreNone) {
  cudasim::set_mem_ops(false);
  const Env by_copies("TR_CUDA_COPY_ENGINE", "2");
  make(2, 2000);
  cudasim::set_mem_ops(true);
  const std::uint64_t before = cudasim::launches();
  each([&](int r) {
    in(r).fill(static_cast<std::uint8_t>(1 + r));
    EXPECT_EQ(all_gather(r, 1000, nullptr).code, TR_SUCCESS);
    EXPECT_TRUE(is_gathered(r, 1000, 1));
  });
  EXPECT_EQ(cudasim::launches() - before, 2u);
  const char* text = nullptr;
  ASSERT_EQ(tr_comm_explain(comm(1), &text), TR_SUCCESS);
  EXPECT_NE(std::string(text).find("no copies by copy engines: rank 0: streams of device 0 cannot "
                                   "write and wait for words"),
            std::string::npos)
      << text;
}

TEST_F(CopiesOf, GpusThatDoNotReachEachOtherHaveNone) {
  const Env quiet("TR_LOG", "off");
  cudasim::set_between(0, 1, cudasim::Between::kNoAccess);
  const Comms comms(2, [](int r) { return r; });
  cudasim::set_between(0, 1, cudasim::Between::kWorks);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  const char* text = nullptr;
  ASSERT_EQ(tr_comm_explain(comms[0], &text), TR_SUCCESS);
  EXPECT_NE(std::string(text).find(
                "no copies by copy engines: rank 0: the GPU of rank 1 is not reached directly"),
            std::string::npos)
      << text;
}

// Kernels and copies of a communicator share buffers and take turns, on whichever streams.
TEST_F(CopiesOf, TakeTurnsWithKernels) {
  const Env by_copies("TR_CUDA_COPY_ENGINE", "2");
  constexpr std::uint64_t kCount = 3000;
  make(3, 3 * kCount * sizeof(std::uint32_t));
  each([&](int r) {
    const UserStream streams[2];
    auto* a = reinterpret_cast<std::uint32_t*>(in(r).get());
    auto* b = reinterpret_cast<std::uint32_t*>(out(r).get());
    for (std::uint64_t i = 0; i < kCount; ++i) a[i] = 1;
    for (int turn = 0; turn < 6; ++turn) {  // each all-reduce makes three times as much of it
      EXPECT_TR(tr_all_gather(a, b, kCount, TR_UINT32, comm(r), streams[turn % 2].get()));
      EXPECT_TR(tr_all_reduce(b + 2 * kCount, a, kCount, TR_UINT32, TR_SUM, comm(r),
                              streams[(turn + 1) % 2].get()));
    }
    for (const UserStream& s : streams) EXPECT_TR(tr_stream_synchronize(s.get()));
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < kCount; ++i) wrong += a[i] != 729 || b[i] != 243;
    EXPECT_EQ(wrong, 0u);
  });
}

// A graph of one call: when it is played again, nothing but its own words came between.
TEST_F(CopiesOf, AGraphMakesThemAgain) {
  const Env by_copies("TR_CUDA_COPY_ENGINE", "2");
  constexpr std::uint64_t kCount = 7001;
  make(3, 3 * kCount);
  each([&](int r) {
    const UserStream stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream.cuda(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(all_gather(r, kCount, stream.get()).code, TR_SUCCESS);
    ASSERT_EQ(cudaStreamEndCapture(stream.cuda(), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int i = 0; i < 6; ++i) {
      const auto first = static_cast<std::uint8_t>(50 + 10 * i);
      if (i % 3 == r) usleep(30'000);  // the others must not go on with what this rank had before
      in(r).fill(static_cast<std::uint8_t>(first + r));
      EXPECT_EQ(cudaGraphLaunch(exec, stream.cuda()), cudaSuccess);
      EXPECT_TR(tr_stream_synchronize(stream.get()));
      EXPECT_TRUE(is_gathered(r, kCount, first)) << i;
      if (i == 3) {
        EXPECT_EQ(all_gather(r, kCount, nullptr).code, TR_SUCCESS);
      }
    }
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  });
}

}  // namespace
}  // namespace treering::test
