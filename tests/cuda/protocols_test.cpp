// Which protocol a call gets, and why: LL128 only where every link keeps its lines whole, and what
// is forced only where it is legal. All ranks decide alike.
#include <cstring>

#include "cuda/support.hpp"
#include "cudasim/control.hpp"
#include "support/ranks.hpp"

namespace treering::test {
namespace {

constexpr std::uint64_t kMedium = 10'000;  // floats: neither LL's nor Simple's

std::string explanation(tr_comm_t comm) {
  const char* text = nullptr;
  return tr_comm_explain(comm, &text) == TR_SUCCESS ? text : tr_get_last_error();
}
bool chooses_ll128(const std::string& text) {
  return text.find("bytes: two_shot, LL128 (") != std::string::npos;
}
// The line that says why LL128 is not used.
std::string refusal(const std::string& text) {
  const std::size_t start = text.find("no protocol LL128: ");
  return start == std::string::npos ? "" : text.substr(start, text.find('\n', start) - start);
}

// All ranks' answer to a sum of device memory; the numbers must be right where it succeeds.
std::vector<Answer> sums(const Comms& comms, const std::function<int(int)>& device_of) {
  std::vector<Answer> answers(static_cast<std::size_t>(comms.size()));
  on_threads(comms.size(), [&](int r) {
    ASSERT_EQ(cudaSetDevice(device_of(r)), cudaSuccess);
    const DeviceArray<float> data(kMedium, static_cast<float>(r + 1));
    Answer& a = answers[static_cast<std::size_t>(r)];
    a = answer(
        tr_all_reduce(data.get(), data.get(), kMedium, TR_FLOAT32, TR_SUM, comms[r], nullptr));
    const float sum = static_cast<float>(comms.size() * (comms.size() + 1) / 2);
    EXPECT_TRUE(a.code != TR_SUCCESS || data.wrong(sum) == 0u);
  });
  return answers;
}

// Other processes' GPUs are known by their bus only. The first test: who has used CUDA must not
// fork.
TEST(LL128, IsAskedForBetweenProcesses) {
  for (const bool nvlink : {true, false}) {
    EXPECT_EQ(run_ranks(Mode::kProcesses, 3,
                        [&](tr_comm_t comm, int rank, int) -> std::string {
                          cudasim::set_nvlink(nvlink);
                          tr_comm_t apart = nullptr;
                          if (cudaSetDevice(rank / 2) != cudaSuccess) return "no such device";
                          if (tr_comm_split(comm, 0, rank, &apart) != TR_SUCCESS) {
                            return tr_get_last_error();
                          }
                          const std::string near = explanation(comm), far = explanation(apart);
                          (void)tr_comm_destroy(apart);
                          if (!chooses_ll128(near)) return "one device, without LL128: " + near;
                          return chooses_ll128(far) == nvlink ? "" : far;
                        }),
              "");
  }
}

class Links : public testing::Test {
 protected:
  void TearDown() override { cudasim::set_nvlink(true); }
  const Env quiet_{"TR_LOG", "off"};
  // Ranks 0 and 1 share a device, and see nothing of the link that rank 2 is behind.
  static int device_of(int rank) { return rank / 2; }
};

TEST_F(Links, OfNvlinkAreGood) {
  const Comms comms(3, device_of);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  for (int r = 0; r < 3; ++r) {
    EXPECT_TRUE(chooses_ll128(explanation(comms[r]))) << explanation(comms[r]);
    EXPECT_EQ(refusal(explanation(comms[r])), "");
  }
  const Env forced("TR_PROTOCOL", "LL128");
  const Comms all(3, device_of);
  ASSERT_TRUE(all.ok()) << all.made(0);
  for (const Answer& a : sums(all, device_of)) EXPECT_EQ(a.code, TR_SUCCESS) << a;
}

TEST_F(Links, OfOneGpuAreGoodAnyway) {
  cudasim::set_nvlink(false);
  const Env forced("TR_PROTOCOL", "LL128");
  const auto one = [](int) { return 1; };
  const Comms comms(3, one);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  for (const Answer& a : sums(comms, one)) EXPECT_EQ(a.code, TR_SUCCESS) << a;
}

TEST_F(Links, OfPcieMakeAllRanksDoWithout) {
  cudasim::set_nvlink(false);
  {
    const Comms comms(3, device_of);
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    for (int r = 0; r < 3; ++r) {
      const std::string text = explanation(comms[r]);
      EXPECT_FALSE(chooses_ll128(text)) << text;
      EXPECT_EQ(refusal(text),
                "no protocol LL128: rank 0: the link to GPU 0000:11:00.0 of rank 2 is not NVLink, "
                "and may tear lines of 128 bytes");
    }
    for (const Answer& a : sums(comms, device_of)) EXPECT_EQ(a.code, TR_SUCCESS) << a;
  }
  const Env forced("TR_PROTOCOL", "LL128");
  const Comms comms(3, device_of);
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  for (const Answer& a : sums(comms, device_of)) {
    EXPECT_EQ(a.code, TR_INVALID_ARGUMENT) << a;
    EXPECT_TRUE(a.says("protocol LL128 was forced, but rank 0: the link to GPU 0000:11:00.0")) << a;
  }
}

// Not knowing is no reason to do without GPUs.
TEST_F(Links, ThatCannotBeAskedAreNotTrusted) {
  for (const char* name : {"cudaDeviceGetP2PAttribute", "cudaDeviceGetAttribute"}) {
    cudasim::fail_call(name, 1, cudaErrorUnknown);
    const Comms comms(3, device_of);
    cudasim::fail_call(name, 0, cudaErrorUnknown);
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    const std::string why = refusal(explanation(comms[0]));
    EXPECT_NE(why.find("cudaErrorUnknown"), std::string::npos) << why;
    for (int r = 0; r < 3; ++r) EXPECT_EQ(refusal(explanation(comms[r])), why);
    for (const Answer& a : sums(comms, device_of)) EXPECT_EQ(a.code, TR_SUCCESS) << a;
  }
}

}  // namespace
}  // namespace treering::test
