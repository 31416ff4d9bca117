// Lazy loading: the first use of a kernel on a device may wait for all that runs there, and that
// may wait for the rank which is about to use it. In the emulator it does wait (CUDASIM_STRICT).
#include <atomic>

#include "cuda/support.hpp"

namespace treering::test {
namespace {

// While rank 0's kernel waits for rank 1, the host thread of rank 1 starts kernels that nobody has
// started before.
TEST(Lazy, AFirstLaunchDoesNotWaitForAKernelThatWaitsForTheRank) {
  const Env timeout("TR_TIMEOUT_S", "5");
  constexpr int kRanks = 2;
  constexpr std::uint64_t kFew = 100, kSome = 40000, kMany = 100'000;  // LL, LL128, Simple
  const Comms both(kRanks), alone(1);
  ASSERT_TRUE(both.ok() && alone.ok()) << both.made(0);
  const DeviceArray<float> x(kFew, 1), y(kFew, 2), z(kMany, 3);  // cudaMalloc waits, too
  std::atomic<bool> is_waiting{false};
  on_threads(kRanks, [&](int r) {
    const UserStream stream, other;
    const DeviceArray<float>& mine = r == 0 ? x : y;
    if (r == 1) {
      while (!is_waiting.load(std::memory_order_acquire)) std::this_thread::yield();
      for (const std::uint64_t count : {kFew, kSome, kMany}) {
        EXPECT_TR(
            tr_all_reduce(z.get(), z.get(), count, TR_FLOAT32, TR_SUM, alone[0], other.get()));
        EXPECT_TR(tr_broadcast(z.get(), z.get(), count, TR_FLOAT32, 0, alone[0], other.get()));
      }
      EXPECT_TR(tr_barrier(alone[0], other.get()));
      EXPECT_TR(tr_stream_synchronize(other.get()));
    }
    EXPECT_TR(
        tr_all_reduce(mine.get(), mine.get(), kFew, TR_FLOAT32, TR_SUM, both[r], stream.get()));
    if (r == 0) is_waiting.store(true, std::memory_order_release);
    EXPECT_TR(tr_stream_synchronize(stream.get()));
    EXPECT_EQ(mine.wrong(3), 0u);
  });
  EXPECT_EQ(z.wrong(3), 0u);
}

}  // namespace
}  // namespace treering::test

int main(int argc, char** argv) {
  ::setenv("CUDASIM_STRICT", "1", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
