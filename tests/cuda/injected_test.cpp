// Each CUDA call that the library makes is made to fail in turn: every rank says so or does
// without, no rank hangs, nothing crashes, nothing leaks.
#include <chrono>
#include <span>

#include "cuda/support.hpp"
#include "cudasim/control.hpp"

namespace treering::test {
namespace {

constexpr int kRanks = 2;

// Those of transports/cuda_ipc, core/cuda_stream.hpp and the engine; `calls`: how many of them two
// ranks make at most, so that every place is hit.
struct Call {
  const char* name;
  int calls;
};
constexpr Call kInitCalls[] = {
    {"cudaGetDeviceCount", 4},
    {"cudaGetDevice", 10},
    {"cudaDeviceGetPCIBusId", 4},
    {"cuDeviceGet", 2},
    {"cuMemMap", 2},
    {"cudaMemsetAsync", 2},
    {"cudaMemcpyAsync", 14},
    {"cudaStreamSynchronize", 14},
    {"cudaStreamQuery", 8},
    {"cudaStreamCreateWithFlags", 8},
    {"cudaDeviceCanAccessPeer", 2},
    {"cudaDeviceGetAttribute", 2},
    {"cudaDeviceGetP2PAttribute", 2},
    {"cudaEventCreateWithFlags", 6},
    {"cudaHostAlloc", 2},
    {"cudaHostGetDevicePointer", 2},
    {"cudaSetDevice", 4},
    {"cudaGetDriverEntryPointByVersion", 4},
    {"cuDeviceGetAttribute", 2},
    {"cudaDeviceGetStreamPriorityRange", 2},
    {"cudaStreamCreateWithPriority", 2},
    {"cuStreamBatchMemOp", 2},
};
// What is called beside these where memory is shared by handles, or lies in the host.
constexpr Call kHandleCalls[] = {
    {"cudaIpcGetMemHandle", 2}, {"cudaDeviceEnablePeerAccess", 2}, {"cudaMemcpyAsync", 10}};
constexpr Call kHostCalls[] = {
    {"cudaHostGetDevicePointer", 8}, {"cudaMemcpyAsync", 10}, {"cudaStreamQuery", 8}};
// What a communicator calls that needs new memory. Pinned memory comes first: what is pinned stays.
constexpr Call kNewMemoryCalls[] = {
    {"cudaHostRegister", 2}, {"cuMemGetAllocationGranularity", 2},
    {"cuMemCreate", 2},      {"cuMemAddressReserve", 4},
    {"cuMemMap", 4},         {"cuMemSetAccess", 4},
    {"cudaMalloc", 2},
};
constexpr Call kRunCalls[] = {
    {"cudaPointerGetAttributes", 2}, {"cudaGetDevice", 2},    {"cudaSetDevice", 4},
    {"cudaStreamIsCapturing", 2},    {"cudaLaunchKernel", 2}, {"cudaLaunchKernelExC", 2},
    {"cudaEventRecord", 2},          {"cudaStreamQuery", 2},
};
constexpr Call kEndCalls[] = {
    {"cudaEventSynchronize", 2}, {"cudaEventDestroy", 6}, {"cudaStreamDestroy", 4},
    {"cudaMemsetAsync", 4},      {"cudaStreamQuery", 2},  {"cudaGetDevice", 2},
};

// The sum of host memory, which works without a GPU too.
void expect_host_works(const Comms& comms) {
  on_threads(kRanks, [&](int r) {
    float x = static_cast<float>(r + 1);
    EXPECT_TR(tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, comms[r], nullptr));
    EXPECT_EQ(x, 3);
  });
}

// An all-reduce on device memory, on every rank, with what each answered.
std::vector<Answer> device_sum(const Comms& comms, std::uint64_t count) {
  std::vector<Answer> answers(kRanks);
  on_threads(kRanks, [&](int r) {
    (void)cudaSetDevice(r);
    DeviceArray<float> data(count, static_cast<float>(r + 1));
    Answer& a = answers[static_cast<std::size_t>(r)];
    a = answer(tr_all_reduce(data.get(), data.get(), count, TR_FLOAT32, TR_SUM, comms[r], nullptr));
    EXPECT_TRUE(a.code != TR_SUCCESS || data.wrong(3) == 0u);
  });
  return answers;
}

class Injected : public testing::Test {
 protected:
  void SetUp() override {
    // What the library keeps for later use is there before anything is counted: pinned memory of
    // pairs that fail, too.
    cudasim::set_between(0, 1, cudasim::Between::kLoses);
    for (int i = 0; i < 2; ++i) {
      const Comms pinned(kRanks, [](int r) { return r; });
      ASSERT_TRUE(pinned.ok());
    }
    cudasim::set_between(0, 1, cudasim::Between::kWorks);
    const Comms first(kRanks, [](int r) { return r; });
    const Comms second(kRanks, [](int r) { return r; });
    ASSERT_TRUE(first.ok() && second.ok());
  }
  Env quiet_{"TR_LOG", "off"};
  Env timeout_{"TR_TIMEOUT_S", "1"};
  Env init_timeout_{"TR_INIT_TIMEOUT_S", "10"};
};

// A call that is not made when it should fail must not fail later.
void fail(const char* name, int nth) { cudasim::fail_call(name, nth, cudaErrorUnknown); }

// Forms a communicator whose nth call fails: all ranks have links, or none has, or all say why.
// Did they say so?
bool form_with_failure(const Call& call, int nth, bool may_refuse) {
  SCOPED_TRACE(std::string(call.name) + ", call " + std::to_string(nth) +
               (may_refuse ? ", strict" : ""));
  bool refused = false;
  const auto start = std::chrono::steady_clock::now();
  {
    fail(call.name, nth);
    const Comms comms(kRanks, [](int r) { return r; });
    fail(call.name, 0);
    EXPECT_EQ(comms.made(0).code, comms.made(1).code) << comms.made(0) << "; " << comms.made(1);
    if (comms.ok()) {
      expect_host_works(comms);
      const std::vector<Answer> sums = device_sum(comms, 100);
      EXPECT_EQ(sums[0].code, sums[1].code) << sums[0] << "; " << sums[1];
      for (const Answer& a : sums) {
        EXPECT_TRUE(a.code == TR_SUCCESS || a.says("has no GPU links")) << a;
      }
    } else {
      refused = true;
      EXPECT_TRUE(may_refuse) << comms.made(0);
      for (int r = 0; r < kRanks; ++r) {
        EXPECT_TRUE(comms.made(r).says("rank ")) << comms.made(r);
        EXPECT_TRUE(comms.made(r).code == TR_UNSUPPORTED || comms.made(r).code == TR_SYSTEM_ERROR)
            << comms.made(r);
      }
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 2.5);
  return refused;
}

std::size_t form_with_failures(std::span<const Call> calls, bool strict) {
  const Env strictly("TR_CUDA_STRICT", strict ? "1" : "0");
  std::size_t refused = 0;
  for (const Call& call : calls) {
    for (int nth = 1; nth <= call.calls; ++nth) refused += form_with_failure(call, nth, strict);
  }
  return refused;
}

// Memory that a failed call could not mark as free, or that a copy may still write to, is lost; not
// that of every communicator, of which there are some 150 with two ranks each.
void expect_little_lost(const cudasim::Live& before) {
  const cudasim::Live after = cudasim::live();
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
  EXPECT_LE(after.allocations, before.allocations + 40);
}

TEST_F(Injected, InInitAllRanksDoWithoutOrSayWhy) {
  const cudasim::Live before = cudasim::live();
  (void)form_with_failures(kInitCalls, false);
  EXPECT_GT(form_with_failures(kInitCalls, true), 30u);  // of about 70
  expect_little_lost(before);
}

TEST_F(Injected, SoDoTheyWithHandlesAndThroughTheHost) {
  cudasim::set_vmm(false);
  {
    const Comms warm(kRanks, [](int r) { return r; });
    ASSERT_TRUE(warm.ok());
  }
  cudasim::Live before = cudasim::live();
  for (const bool strict : {false, true}) (void)form_with_failures(kHandleCalls, strict);
  expect_little_lost(before);
  cudasim::set_vmm(true);

  cudasim::set_between(0, 1, cudasim::Between::kLoses);
  {
    const Comms warm(kRanks, [](int r) { return r; });
    ASSERT_TRUE(warm.ok());
  }
  before = cudasim::live();
  (void)form_with_failures(kHostCalls, false);
  expect_little_lost(before);
  cudasim::set_between(0, 1, cudasim::Between::kWorks);
}

TEST_F(Injected, SoDoTheyWhoNeedNewMemory) {
  const Env few("TR_CUDA_CHANNELS", "1");
  int size = 1024;
  for (const bool vmm : {true, false}) {
    cudasim::set_vmm(vmm);
    for (const auto between : {cudasim::Between::kLoses, cudasim::Between::kWorks}) {
      cudasim::set_between(0, 1, between);
      for (const Call& call : kNewMemoryCalls) {
        for (int nth = 1; nth <= call.calls; ++nth) {
          const Env other_size("TR_CUDA_SLOT_BYTES", std::to_string(size += 4096));
          (void)form_with_failure(call, nth, false);
        }
      }
    }
  }
  cudasim::set_vmm(true);
}

// Each rank gets the other's vector.
tr_result_t swap(float* data, float* result, std::uint64_t count, int rank, tr_comm_t comm) {
  (void)tr_group_start();
  (void)tr_send(data, count, TR_FLOAT32, 1 - rank, comm, nullptr);
  (void)tr_recv(result, count, TR_FLOAT32, 1 - rank, comm, nullptr);
  return tr_group_end();
}

struct Run {
  std::uint64_t count;
  bool messages;
};
constexpr Run kRuns[] = {{16, false}, {30000, false}, {30000, true}};

// Which is done by the first communicator on a device. Where it fails, the next one tries again.
TEST_F(Injected, WhenKernelsAreLoaded) {
  const auto fresh = [](int) { return 2; };
  const Env strictly("TR_CUDA_STRICT", "1");
  struct Loading {
    const char* name;
    int first, last;
  };
  for (const Loading& call : {Loading{"cudaFuncGetAttributes", 1, 8},
                              {"cudaOccupancyMaxActiveBlocksPerMultiprocessor", 1, 8},
                              {"cudaDeviceGetAttribute", 1, 1}}) {
    for (const int nth : {call.first, call.last}) {
      for (const cudaError_t error : {cudaErrorUnknown, cudaErrorNoKernelImageForDevice}) {
        SCOPED_TRACE(std::string(call.name) + ", call " + std::to_string(nth));
        cudasim::fail_call(call.name, nth, error);
        const Comms comms(1, fresh);
        cudasim::fail_call(call.name, 0, error);
        EXPECT_EQ(comms.made(0).code, TR_SYSTEM_ERROR) << comms.made(0);
        EXPECT_TRUE(comms.made(0).says("loading the kernels on device 2")) << comms.made(0);
        EXPECT_EQ(comms.made(0).says("built without -Dgpu_archs=sm_90"),
                  error == cudaErrorNoKernelImageForDevice)
            << comms.made(0);
      }
    }
  }
  const Comms comms(1, fresh);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  on_threads(1, [&](int) {
    (void)cudaSetDevice(2);
    const DeviceArray<float> in(100, 3), out(100);
    EXPECT_TR(tr_all_reduce(in.get(), out.get(), 100, TR_FLOAT32, TR_SUM, comms[0], nullptr));
    EXPECT_EQ(out.wrong(3), 0u);
  });
}

TEST_F(Injected, InACallNoRankHangs) {
  std::size_t hit = 0;
  for (const auto [count, messages] : kRuns) {
    for (const Call& call : kRunCalls) {
      for (int nth = 1; nth <= call.calls; ++nth) {
        SCOPED_TRACE(std::string(call.name) + ", call " + std::to_string(nth) + ", count " +
                     std::to_string(count) + (messages ? ", messages" : ""));
        double limit_s = 3;
        const auto start = std::chrono::steady_clock::now();
        {
          const Comms comms(kRanks, [](int r) { return r; });
          ASSERT_TRUE(comms.ok());
          // Buffers first: their calls are not the library's.
          std::vector<Answer> answers(kRanks);
          DeviceArray<float> data0(count, 1), result0(count, 0);
          (void)cudaSetDevice(1);
          DeviceArray<float> data1(count, 2), result1(count, 0);
          (void)cudaSetDevice(0);
          fail(call.name, nth);
          on_threads(kRanks, [&](int r) {
            float* const data = r == 0 ? data0.get() : data1.get();
            float* const result = r == 0 ? result0.get() : result1.get();
            answers[static_cast<std::size_t>(r)] =
                answer(messages ? swap(data, result, count, r, comms[r])
                                : tr_all_reduce(data, result, count, TR_FLOAT32, TR_SUM, comms[r],
                                                nullptr));
          });
          fail(call.name, 0);
          const bool ok0 = answers[0].code == TR_SUCCESS, ok1 = answers[1].code == TR_SUCCESS;
          EXPECT_TRUE(!ok0 || result0.wrong(messages ? 2 : 3) == 0u);
          EXPECT_TRUE(!ok1 || result1.wrong(messages ? 1 : 3) == 0u);
          if (ok0 && ok1) continue;
          ++hit;
          // The other rank may have had all it needed; it fails otherwise, and says of whom.
          for (const Answer& a : answers) {
            EXPECT_TRUE(a.code == TR_SUCCESS || a.code == TR_INVALID_ARGUMENT ||
                        a.says("cudaErrorUnknown") || a.says("from rank "))
                << a;
          }
          // What it is, is only the pointer's rank told: as with any argument that is refused, the
          // other waits for the deadline.
          const bool refused = std::string(call.name) == "cudaPointerGetAttributes";
          EXPECT_EQ(answers[0].says("cudaErrorUnknown") || answers[1].says("cudaErrorUnknown"),
                    !refused)
              << answers[0] << "; " << answers[1];
          limit_s = refused ? 3 : 0.9;
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        EXPECT_LT(took.count(), limit_s);
      }
    }
  }
  EXPECT_GT(hit, 10u);
}

TEST_F(Injected, InDestroyNothingIsLost) {
  const cudasim::Live before = cudasim::live();
  std::size_t calls = 0;
  for (const Call& call : kEndCalls) {
    for (int nth = 1; nth <= call.calls; ++nth, ++calls) {
      SCOPED_TRACE(std::string(call.name) + ", call " + std::to_string(nth));
      const Comms comms(kRanks, [](int r) { return r; });
      ASSERT_TRUE(comms.ok());
      for (const Answer& a : device_sum(comms, 100)) EXPECT_EQ(a.code, TR_SUCCESS) << a;
      fail(call.name, nth);
      on_threads(kRanks, [&](int r) { EXPECT_TR(tr_comm_finalize(comms[r])); });
      on_threads(kRanks, [&](int r) { EXPECT_TR(tr_comm_destroy(comms[r])); });
      fail(call.name, 0);
    }
  }
  // A stream or an event that CUDA refuses to destroy stays; so does a slab whose peer could not
  // say that it is done.
  const cudasim::Live after = cudasim::live();
  EXPECT_LE(after.streams + after.events + after.allocations,
            before.streams + before.events + before.allocations + calls);
}

}  // namespace
}  // namespace treering::test
