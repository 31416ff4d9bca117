// GPUs that do not reach each other, for whatever reason: only their pair's links go through the
// host, all ranks know why, and nothing hangs.
#include <algorithm>
#include <chrono>

#include "core/log.hpp"
#include "cuda/leaves_nothing.hpp"
#include "cuda/support.hpp"
#include "cudasim/control.hpp"

namespace treering::test {
namespace {

using cudasim::Between;

// TR_LOG is read once.
struct Quiet {
  Quiet() { set_log_level(LogLevel::kOff); }
  ~Quiet() { set_log_level(LogLevel::kWarn); }
};

constexpr int kRanks = 3;
int device_of(int rank) { return rank; }

std::string explanation(tr_comm_t comm) {
  const char* text = nullptr;
  return tr_comm_explain(comm, &text) == TR_SUCCESS ? text : tr_get_last_error();
}
// The line that begins so, without that beginning.
std::string line_of(const std::string& text, const std::string& beginning) {
  const std::size_t at = text.find(beginning);
  if (at == std::string::npos) return "";
  const std::size_t from = at + beginning.size();
  return text.substr(from, text.find('\n', from) - from);
}
std::string way_to(tr_comm_t comm, int rank) {
  return line_of(explanation(comm), "on the device, to rank " + std::to_string(rank) + ": ");
}

void expect_sums(const Comms& comms) {
  on_threads(comms.size(), [&](int r) {
    ASSERT_EQ(cudaSetDevice(device_of(r)), cudaSuccess);
    for (const std::uint64_t count : {5, 3000, 200'000}) {
      const DeviceArray<float> data(count, static_cast<float>(r + 1));
      EXPECT_TR(
          tr_all_reduce(data.get(), data.get(), count, TR_FLOAT32, TR_SUM, comms[r], nullptr));
      EXPECT_EQ(data.wrong(6), 0u) << "rank " << r << ", count " << count;
    }
  });
}

// The fault lies between devices 0 and 2.
struct Fault {
  Between what;
  const char* why;
};
constexpr Fault kFaults[] = {
    {Between::kNoAccess,
     "GPU 0000:10:00.0 of rank 0 cannot map memory of GPU 0000:12:00.0 of rank 2: there is no peer "
     "access between the two"},
    {Between::kLoses,
     "what rank 2 wrote to the memory of GPU 0000:10:00.0 of rank 0 did not arrive; an IOMMU or "
     "ACS may break peer-to-peer access"},
    {Between::kHangs,
     "writing to the memory of rank 2 (peer memory of device 2, same process) has not ended within "
     "2000 ms"},
};

class Pairs : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { cudasim::set_vmm(GetParam()); }
  void TearDown() override {
    cudasim::set_between(0, 2, Between::kWorks);
    cudasim::set_vmm(true);
  }
  const Env init_timeout_{"TR_INIT_TIMEOUT_S", "8"};  // a quarter of it for the trial of a link
};
INSTANTIATE_TEST_SUITE_P(Vmm, Pairs, testing::Bool());

TEST_P(Pairs, ThatAreCutOffGoThroughTheHost) {
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.why);
    cudasim::set_between(0, 2, fault.what);
    testing::internal::CaptureStderr();
    const Comms comms(kRanks, device_of);
    const std::string log = testing::internal::GetCapturedStderr();
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    // One line on each of the two ranks, none on the third.
    const std::string says = " lie in pinned host memory, which is slow: " + std::string(fault.why);
    EXPECT_EQ(line_of(log, "rank 0 warning: links with rank 2"), says) << log;
    EXPECT_EQ(line_of(log, "rank 2 warning: links with rank 0"), says) << log;
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
    const std::string pinned = "pinned host memory, because " + std::string(fault.why);
    EXPECT_EQ(way_to(comms[0], 2), pinned);
    EXPECT_EQ(way_to(comms[2], 0), pinned);
    EXPECT_EQ(way_to(comms[0], 1), "peer memory of device 1, same process");
    EXPECT_EQ(way_to(comms[1], 2), "peer memory of device 2, same process");
    EXPECT_EQ(way_to(comms[1], 0), "peer memory of device 0, same process");
    EXPECT_EQ(
        line_of(explanation(comms[1]), "no protocol LL128: "),
        "rank 0: links with rank 2 lie in pinned host memory, where lines of 128 bytes may be "
        "torn");
    expect_sums(comms);
    // What hangs in vain ends before the next test looks at what is left.
    cudasim::set_between(0, 2, Between::kWorks);
  }
}

TEST_P(Pairs, ThatAreCutOffAreAnErrorIfSoWished) {
  const Env strict("TR_CUDA_STRICT", "1");
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.why);
    cudasim::set_between(0, 2, fault.what);
    const Comms comms(kRanks, device_of);
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(comms.made(r).code, TR_UNSUPPORTED) << comms.made(r);
      EXPECT_TRUE(comms.made(r).says("GPUs do not reach each other: ranks 0 and 2: " +
                                     std::string(fault.why)))
          << comms.made(r);
    }
    cudasim::set_between(0, 2, Between::kWorks);
  }
}

// Forced where it is not legal, on all ranks alike.
TEST_P(Pairs, Ll128IsRefused) {
  const Quiet quiet;
  const Env forced("TR_PROTOCOL", "LL128");
  cudasim::set_between(0, 2, Between::kNoAccess);
  const Comms comms(kRanks, device_of);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  on_threads(kRanks, [&](int r) {
    ASSERT_EQ(cudaSetDevice(device_of(r)), cudaSuccess);
    const DeviceArray<float> data(1000, 1);
    const Answer a =
        answer(tr_all_reduce(data.get(), data.get(), 1000, TR_FLOAT32, TR_SUM, comms[r], nullptr));
    EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;
    EXPECT_TRUE(a.says("protocol LL128 was forced, but rank 0: links with rank 2 lie in pinned"))
        << a;
  });
}

// A copy that hangs holds up no rank longer than the trial takes.
TEST_P(Pairs, ThatHangDoSoForTheTrialOnly) {
  const Quiet quiet;
  cudasim::set_between(0, 2, Between::kHangs);
  const auto start = std::chrono::steady_clock::now();
  {
    const Comms comms(kRanks, device_of);
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    expect_sums(comms);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 15);  // for ever, without a limit
  cudasim::set_between(0, 2, Between::kWorks);
}

// Whatever the memory of the host refuses, all ranks do without GPUs, or say so.
TEST_P(Pairs, WithoutPinnedMemoryDoWithout) {
  const Quiet quiet;
  cudasim::set_between(0, 2, Between::kNoAccess);
  {
    const Comms warm(kRanks, device_of);  // pinned memory is kept
    ASSERT_TRUE(warm.ok());
  }
  cudasim::fail_call("cudaHostGetDevicePointer", 1, cudaErrorUnknown);
  const Comms comms(kRanks, device_of);
  cudasim::fail_call("cudaHostGetDevicePointer", 0, cudaErrorUnknown);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(way_to(comms[r], (r + 1) % kRanks), "");
}

TEST_P(Pairs, TwoHundredCommunicatorsLeaveNothing) {
  const Quiet quiet;
  cudasim::set_between(0, 2, Between::kNoAccess);
  const Comms comms(kRanks, device_of);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  on_threads(kRanks, [&](int r) {
    ASSERT_EQ(cudaSetDevice(device_of(r)), cudaSuccess);
    EXPECT_EQ(leaves_nothing(comms[r], r, 200), "");
  });
}

}  // namespace
}  // namespace treering::test
