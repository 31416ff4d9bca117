// A build with CUDA on a machine without a GPU, and a caller who does not want it. Linked with the
// emulator, and with the library as nvcc built it.
#include "cuda/support.hpp"

namespace treering::test {
namespace {

void expect_host_sum(const Comms& comms) {
  on_threads(comms.size(), [&](int r) {
    std::vector<float> x(5000, static_cast<float>(r + 1));
    EXPECT_TR(tr_all_reduce(x.data(), x.data(), x.size(), TR_FLOAT32, TR_SUM, comms[r], nullptr));
    EXPECT_EQ(x, std::vector<float>(5000, 3));
  });
}

std::size_t lines_with(const std::string& text, const std::string& words) {
  std::size_t n = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1))
    ++n;
  return n;
}

TEST(NoGpu, HostMemoryWorksAndOneLineSaysWhy) {
  testing::internal::CaptureStderr();
  const Comms comms(2);
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(comms.ok()) << comms.made(0);
  const char* const line = " info: host engine only: rank 0 has no device: no GPU or no driver: ";
  EXPECT_EQ(lines_with(log, line), 2u) << log;  // one a rank, for those who ask
  EXPECT_EQ(lines_with(log, "GPU"), 2u) << log;
  EXPECT_EQ(lines_with(log, "warn"), 0u) << log;
  expect_host_sum(comms);
}

TEST(NoGpu, StrictIsAnErrorOnAllRanks) {
  const Env strict("TR_CUDA_STRICT", "1");
  const Comms comms(3);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(comms.made(r).code, TR_UNSUPPORTED) << comms.made(r);
    EXPECT_TRUE(comms.made(r).says("rank 0 has no device: no GPU or no driver")) << comms.made(r);
  }
}

TEST(NoGpu, ACudaStreamIsRefused) {
  const Comms comms(1);
  ASSERT_TRUE(comms.ok());
  tr_stream_t stream = nullptr;
  EXPECT_TR(tr_stream_from_cuda(&stream, nullptr));
  float x = 1;
  const Answer a = answer(tr_all_reduce(&x, &x, 1, TR_FLOAT32, TR_SUM, comms[0], stream));
  EXPECT_EQ(a.code, TR_UNSUPPORTED) << a;
  EXPECT_TRUE(a.says("no GPU links") && a.says("TR_LOG=info")) << a;
}

TEST(NoGpu, LeftAloneNothingIsSaid) {
  const Env off("TR_CUDA", "0");
  for (const char* is_strict : {"0", "1"}) {
    const Env strict("TR_CUDA_STRICT", is_strict);  // of GPUs that nobody asks for
    testing::internal::CaptureStderr();
    const Comms comms(2);
    const std::string log = testing::internal::GetCapturedStderr();
    ASSERT_TRUE(comms.ok()) << comms.made(0);
    EXPECT_EQ(lines_with(log, "GPU") + lines_with(log, "device"), 0u) << log;
    expect_host_sum(comms);
  }
}

}  // namespace
}  // namespace treering::test

int main(int argc, char** argv) {
  ::setenv("CUDASIM_DEVICES", "0", 0);      // -1: no driver
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // for the real CUDA
  ::setenv("TR_LOG", "info", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
