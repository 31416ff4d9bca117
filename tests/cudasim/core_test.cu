// Blocks, warps, shared memory: what a kernel may rely on.
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx_memory.cuh"
#include "support.hpp"

namespace {

using namespace treering::cuda;

// Each thread writes, the block meets, each reads its neighbour's; twice, with the array used
// again.
__global__ void rotate(int* out, int rounds) {
  __shared__ int slots[256];
  int value = thread_id();
  for (int i = 0; i < rounds; ++i) {
    slots[thread_id()] = value;
    __syncthreads();
    value = slots[(thread_id() + 1) % block_threads()];
    __syncthreads();
  }
  out[block_id() * block_threads() + thread_id()] = value;
}

TEST(Block, BarriersAndStaticSharedMemory) {
  DeviceArray<int> out(3 * 256);
  ASSERT_EQ(launch(rotate, 3, 256, 0, nullptr, out.get(), 5), cudaSuccess);
  const std::vector<int> host = out.to_host();
  for (int i = 0; i < 3 * 256; ++i) EXPECT_EQ(host[i], (i % 256 + 5) % 256);
}

__global__ void reverse_dynamic(int* out, int count) {
  int* shared = reinterpret_cast<int*>(dynamic_shared());
  for (int i = thread_id(); i < count; i += block_threads()) shared[i] = i;
  __syncthreads();
  for (int i = thread_id(); i < count; i += block_threads()) out[i] = shared[count - 1 - i];
}

TEST(Block, DynamicSharedMemory) {
  DeviceArray<int> out(1000);
  ASSERT_EQ(launch(reverse_dynamic, 1, 64, 4000, nullptr, out.get(), 1000), cudaSuccess);
  const std::vector<int> host = out.to_host();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(host[i], 999 - i);
}

TEST(Block, DynamicSharedMemoryBeyond48KiBMustBeAskedFor) {
  DeviceArray<int> out(1000);
  EXPECT_EQ(launch(reverse_dynamic, 1, 64, 50 << 10, nullptr, out.get(), 1000),
            cudaErrorInvalidValue);
  EXPECT_EQ(allow_shared(reverse_dynamic, 300 << 10), cudaErrorInvalidValue);
  EXPECT_EQ(allow_shared(reverse_dynamic, 64 << 10), cudaSuccess);
  EXPECT_EQ(launch(reverse_dynamic, 1, 64, 50 << 10, nullptr, out.get(), 1000), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// Warps 0..1 and 2..3 meet at barriers of their own, a different number of times.
__global__ void two_groups(int* out) {
  __shared__ int sums[2];
  const int group = thread_id() / 64;
  for (int i = 0; i < 3 + 4 * group; ++i) {
    barrier_sync(1 + group, 64);
    if (thread_id() % 64 == 0) sums[group] = i;
    barrier_sync(1 + group, 64);
  }
  const bool any_big = barrier_or(3 + group, 64, thread_id() == 100);
  __syncthreads();
  if (thread_id() == 0) {
    out[0] = sums[0];
    out[1] = sums[1];
  }
  if (thread_id() % 64 == 0) out[2 + group] = any_big;
}

TEST(Block, NamedBarriers) {
  DeviceArray<int> out(4);
  ASSERT_EQ(launch(two_groups, 1, 128, 0, nullptr, out.get()), cudaSuccess);
  EXPECT_EQ(out.to_host(), (std::vector<int>{2, 6, 0, 1}));
}

__global__ void count_even(int* out) {
  if (thread_id() >= 96) return;  // a barrier of all means all that are left
  out[thread_id()] = __syncthreads_count(thread_id() % 2 == 0);
}

TEST(Block, ThreadsThatEndedAreNotWaitedFor) {
  DeviceArray<int> out(96);
  ASSERT_EQ(launch(count_even, 1, 128, 0, nullptr, out.get()), cudaSuccess);
  EXPECT_EQ(out.to_host(), std::vector<int>(96, 48));
}

__global__ void grid_shape(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * 24 + thread] = block * 100 + thread;
}

TEST(Block, ThreeDimensions) {
  DeviceArray<unsigned> out(12 * 24);
  ASSERT_EQ(launch(grid_shape, dim3(2, 3, 2), dim3(4, 3, 2), 0, nullptr, out.get()), cudaSuccess);
  const std::vector<unsigned> host = out.to_host();
  for (unsigned i = 0; i < host.size(); ++i) EXPECT_EQ(host[i], i / 24 * 100 + i % 24);
}

TEST(Block, ShapesThatNoGpuTakes) {
  EXPECT_EQ(launch(grid_shape, 0, 32, 0, nullptr, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(grid_shape, 1, 1025, 0, nullptr, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(grid_shape, dim3(1, 70000), 32, 0, nullptr, nullptr),
            cudaErrorInvalidConfiguration);
}

template <class T>
__global__ void shuffles(T* out) {
  const int lane = lane_id();
  const T value = static_cast<T>(lane * 3);
  out[lane] = __shfl_sync(kFullWarp, value, (lane + 5) % 32);
  out[32 + lane] = __shfl_up_sync(kFullWarp, value, 3);
  out[64 + lane] = __shfl_down_sync(kFullWarp, value, 3);
  out[96 + lane] = __shfl_xor_sync(kFullWarp, value, 9);
  out[128 + lane] = __shfl_sync(kFullWarp, value, 2, 8);  // lane 2 of each 8
  out[160 + lane] = __shfl_up_sync(kFullWarp, value, 1, 8);
  out[192 + lane] = __shfl_down_sync(kFullWarp, value, 1, 8);
  out[224 + lane] = shuffle(kFullWarp, shuffle_xor(kFullWarp, value, 1), 31);
}

template <class T>
void check_shuffles() {
  DeviceArray<T> out(256);
  ASSERT_EQ(launch(shuffles<T>, 1, 32, 0, nullptr, out.get()), cudaSuccess);
  const std::vector<T> host = out.to_host();
  for (int lane = 0; lane < 32; ++lane) {
    const auto expect = [&](int row, int source) {
      EXPECT_EQ(host[row * 32 + lane], T(source * 3));
    };
    expect(0, (lane + 5) % 32);
    expect(1, lane < 3 ? lane : lane - 3);
    expect(2, lane + 3 > 31 ? lane : lane + 3);
    expect(3, lane ^ 9);
    expect(4, lane / 8 * 8 + 2);
    expect(5, lane % 8 == 0 ? lane : lane - 1);
    expect(6, lane % 8 == 7 ? lane : lane + 1);
    expect(7, 30);
  }
}

TEST(Warp, ShufflesOf4And8Bytes) {
  check_shuffles<int>();
  check_shuffles<float>();
  check_shuffles<double>();
  check_shuffles<unsigned long long>();
}

__global__ void votes(unsigned* out) {
  const int lane = lane_id();
  const unsigned third = ballot(kFullWarp, lane % 3 == 0);
  const unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u;  // each half votes for itself
  const unsigned odd = ballot(half, lane % 2 == 1);
  const bool has_20 = any(half, lane == 20);
  const bool is_small = all(half, lane < 16);
  if (lane == 0 || lane == 16) {
    unsigned* mine = out + lane / 16 * 4;
    mine[0] = third;
    mine[1] = odd;
    mine[2] = has_20;
    mine[3] = is_small;
  }
}

TEST(Warp, Votes) {
  DeviceArray<unsigned> out(8);
  ASSERT_EQ(launch(votes, 1, 64, 0, nullptr, out.get()), cudaSuccess);
  EXPECT_EQ(out.to_host(), (std::vector<unsigned>{0x49249249, 0x0000aaaa, 0, 1,  //
                                                  0x49249249, 0xaaaa0000, 1, 0}));
}

__global__ void warp_sum(int* out) {
  __shared__ int values[64];
  values[thread_id()] = thread_id();
  sync_warp();
  int sum = 0;
  for (int i = 0; i < 32; ++i) sum += values[warp_id() * 32 + i];
  out[thread_id()] = sum;
}

TEST(Warp, SyncWarpOrdersSharedMemory) {
  DeviceArray<int> out(64);
  ASSERT_EQ(launch(warp_sum, 1, 64, 0, nullptr, out.get()), cudaSuccess);
  const std::vector<int> host = out.to_host();
  for (int i = 0; i < 64; ++i) EXPECT_EQ(host[i], i < 32 ? 496 : 496 + 32 * 32);
}

// One block waits for the other; the flag is in device memory.
__global__ void hand_over(std::uint64_t* flag, Vec16* data, std::uint64_t* out) {
  if (block_id() == 0) {
    while (load_acquire(flag) != 1) spin_pause();
    __syncthreads();
    out[thread_id()] = load_vec(data + thread_id()).hi;
  } else {
    store_vec(data + thread_id(), {1, static_cast<std::uint64_t>(thread_id()) * 7});
    __syncthreads();
    if (thread_id() == 0) store_release(flag, 1);
  }
}

TEST(Block, BlocksOfAGridWaitForEachOther) {
  DeviceArray<std::uint64_t> flag(1), out(64);
  DeviceArray<Vec16> data(64);
  flag.fill(0);
  ASSERT_EQ(launch(hand_over, 2, 64, 0, nullptr, flag.get(), data.get(), out.get()), cudaSuccess);
  const std::vector<std::uint64_t> host = out.to_host();
  for (std::uint64_t i = 0; i < 64; ++i) EXPECT_EQ(host[i], i * 7);
}

__global__ void bump(std::uint64_t* counter, std::uint32_t* small) {
  fetch_add(counter, 3);
  fetch_add(small, 1u);
}

TEST(Memory, AtomicAdds) {
  DeviceArray<std::uint64_t> counter(1);
  DeviceArray<std::uint32_t> small(1);
  counter.fill(0);
  small.fill(0);
  ASSERT_EQ(launch(bump, 4, 96, 0, nullptr, counter.get(), small.get()), cudaSuccess);
  EXPECT_EQ(counter.to_host()[0], 3u * 4 * 96);
  EXPECT_EQ(small.to_host()[0], 4u * 96);
}

}  // namespace
