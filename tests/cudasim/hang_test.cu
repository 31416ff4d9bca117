// A kernel that can never end is reported, and says why.
#include <cstdlib>
#include <gtest/gtest.h>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx_memory.cuh"

namespace {

using namespace treering::cuda;

__global__ void all_but_one_at_barrier(const std::uint64_t* never) {
  if (thread_id() == 5) {
    while (load_acquire(never) == 0) spin_pause();
  }
  __syncthreads();
}
__global__ void two_barriers() {
  if (thread_id() < 32) {
    barrier_sync(1, 64);
  } else {
    barrier_sync(2, 64);
  }
}
__global__ void disagree() { barrier_sync(1, thread_id() < 32 ? 64 : 96); }
__global__ void odd_count() { barrier_sync(1, 40); }
__global__ void half_warps() {
  if (thread_id() % 2 == 0) barrier_sync(1, 32);
}
__global__ void not_in_mask() { sync_warp(0xff); }
__global__ void mismatch() {
  if (lane_id() < 16) {
    sync_warp();
  } else {
    any(kFullWarp, true);
  }
}
__global__ void lonely_warp() {
  if (lane_id() != 3) sync_warp();
}
__global__ void lonely_shuffle() { shuffle(0xff, lane_id(), 9); }

// All blocks of the grid wait until all have come.
__global__ void grid_barrier(std::uint64_t* count) {
  if (thread_id() == 0) fetch_add(count, 1);
  while (load_acquire(count) < std::uint64_t(grid_blocks())) spin_pause();
}

std::uint64_t* zero() {
  std::uint64_t* p = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&p), 8);
  cudaMemset(p, 0, 8);
  return p;
}

template <class... Params, class... Args>
void run(void (*kernel)(Params...), int blocks, int threads, Args... args) {
  setenv("CUDASIM_HANG_S", "0.5", 1);
  setenv("CUDASIM_SMS", "2", 1);
  launch(kernel, blocks, threads, 0, nullptr, args...);
  std::exit(cudaDeviceSynchronize() == cudaSuccess ? 0 : 1);
}

class Hang : public testing::Test {
 protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    unsetenv("CUDASIM_SEED");  // who is named depends on the order
    setenv("CUDASIM_HANG_S", "0.5", 1);
    setenv("CUDASIM_SMS", "2", 1);
  }
};

TEST_F(Hang, SpinningForEver) {
  EXPECT_DEATH(run(all_but_one_at_barrier, 2, 128, zero()),
               "hang: nothing but spinning.*\n"
               "  kernel .*all_but_one_at_barrier, device 0, block \\(.,0,0\\) of \\(2,1,1\\): "
               "127 at barrier 0 \\(hang_test.cu:[0-9]+\\), 1 spinning \\(hang_test.cu:[0-9]+\\)");
}
TEST_F(Hang, BothBlocksAreShown) {
  EXPECT_DEATH(run(all_but_one_at_barrier, 2, 32, zero()),
               "block \\(0,0,0\\)(.*\n)*.*block \\(1,0,0\\)|"
               "block \\(1,0,0\\)(.*\n)*.*block \\(0,0,0\\)");
}
TEST_F(Hang, AllAtBarriersIsNoticedAtOnce) {
  EXPECT_DEATH(run(two_barriers, 1, 64),
               "no thread of the block can go on.*\n.*32 at barrier 1 \\(.*, 32 at barrier 2 \\(");
}
TEST_F(Hang, BarrierSizesDisagree) {
  EXPECT_DEATH(run(disagree, 1, 128), "barrier 1: threads disagree on how many meet, 64 .* and 96");
}
TEST_F(Hang, BarrierOfHalfAWarp) {
  EXPECT_DEATH(run(odd_count, 1, 64), "barrier 1 of 40 threads .*: not a multiple of 32");
  EXPECT_DEATH(run(half_warps, 1, 64), "of warp . only lanes 0x55555555 came");
}
TEST_F(Hang, LaneOutsideItsMask) {
  EXPECT_DEATH(run(not_in_mask, 1, 32),
               "lane 8 calls a warp function without being in its mask 0x000000ff");
}
TEST_F(Hang, WarpFunctionsThatDoNotMatch) {
  EXPECT_DEATH(run(mismatch, 1, 32), "that do not match: lane 0 at ");
}
TEST_F(Hang, ShuffleFromALaneThatIsNotThere) {
  EXPECT_DEATH(run(lonely_shuffle, 1, 8), "lane 0 shuffles from lane 9, which does not take part");
}
TEST_F(Hang, ALaneThatEndedIsNotWaitedFor) {
  EXPECT_EXIT(run(lonely_warp, 1, 32), testing::ExitedWithCode(0), "");
}

// 512 threads a block, 2 SMs: 4 blocks at a time.
TEST_F(Hang, AGridThatFits) {
  EXPECT_EXIT(run(grid_barrier, 4, 512, zero()), testing::ExitedWithCode(0), "");
}
TEST_F(Hang, AGridThatDoesNot) {
  EXPECT_DEATH(run(grid_barrier, 5, 512, zero()),
               "grid_barrier, device 0: blocks from number 4 of 5 on have not started: the device "
               "has 2 SMs, "
               "room for 4 such blocks");
}

}  // namespace
