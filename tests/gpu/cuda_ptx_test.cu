// One test per function of ptx.cuh, ptx_memory.cuh and launch.cuh. The same text runs on a GPU
// (nvcc) and under the emulator (g++): what the two bodies of a function must agree on.
#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx_memory.cuh"
#include "cudasim/support.hpp"

namespace {

using namespace treering::cuda;
using std::uint32_t;
using std::uint64_t;

constexpr int kRounds = 100;  // of a ping-pong between two blocks

void expect_done() { EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess); }

// --- Who am I ------------------------------------------------------------------------------------

__global__ void numbers(int* out) {
  int* const mine = out + 6 * (block_id() * block_threads() + thread_id());
  mine[0] = thread_id();
  mine[1] = block_threads();
  mine[2] = block_id();
  mine[3] = grid_blocks();
  mine[4] = lane_id();
  mine[5] = warp_id();
}

TEST(Ids, ThreadBlockGridLaneWarp) {
  const DeviceArray<int> out(6 * 3 * 96);
  ASSERT_EQ(launch(numbers, 3, 96, 0, nullptr, out.get()), cudaSuccess);
  const std::vector<int> host = out.to_host();
  for (int b = 0; b < 3; ++b) {
    for (int t = 0; t < 96; ++t) {
      const int* mine = host.data() + 6 * (b * 96 + t);
      EXPECT_EQ(std::vector<int>(mine, mine + 6), (std::vector<int>{t, 96, b, 3, t % 32, t / 32}));
    }
  }
}

// --- Flags ---------------------------------------------------------------------------------------

// Block 0 writes a line of data and a flag, block 1 answers with the sum of what it read: `post`
// and `seen` are the functions under test.
template <class Word, class Post, class Seen>
TR_DEVICE void ping_pong(Word* flags, uint64_t* data, uint64_t* wrong, Post post, Seen seen) {
  for (int round = 1; round <= kRounds; ++round) {
    const Word number = static_cast<Word>(round);
    if (block_id() == 0) {
      data[thread_id()] = static_cast<uint64_t>(round) * 1000 + static_cast<uint64_t>(thread_id());
      __syncthreads();
      if (thread_id() == 0) post(flags, number);
      while (seen(flags + 1) != number) spin_pause();
    } else {
      while (seen(flags) != number) spin_pause();
      __syncthreads();
      const uint64_t expected =
          static_cast<uint64_t>(round) * 1000 + static_cast<uint64_t>(thread_id());
      if (data[thread_id()] != expected) wrong[thread_id()] += 1;
      __syncthreads();
      if (thread_id() == 0) post(flags + 1, number);
    }
    __syncthreads();
  }
}

template <class Word>
__global__ void release_acquire(Word* flags, uint64_t* data, uint64_t* wrong) {
  ping_pong(
      flags, data, wrong, [](Word* p, Word v) { store_release(p, v); },
      [](const Word* p) { return load_acquire(p); });
}

// fence_system orders what store_relaxed and load_relaxed alone do not.
template <class Word>
__global__ void relaxed_and_fence(Word* flags, uint64_t* data, uint64_t* wrong) {
  ping_pong(
      flags, data, wrong,
      [](Word* p, Word v) {
        fence_system();
        store_relaxed(p, v);
      },
      [](const Word* p) {
        const Word v = load_relaxed(p);
        fence_system();
        return v;
      });
}

template <class Word, class Kernel>
void check_ping_pong(Kernel kernel) {
  const DeviceArray<Word> flags(2);
  const DeviceArray<uint64_t> data(64), wrong(64);
  EXPECT_EQ(cudaMemset(flags.get(), 0, 2 * sizeof(Word)), cudaSuccess);
  EXPECT_EQ(cudaMemset(wrong.get(), 0, 64 * sizeof(uint64_t)), cudaSuccess);
  ASSERT_EQ(launch(kernel, 2, 64, 0, nullptr, flags.get(), data.get(), wrong.get()), cudaSuccess);
  EXPECT_EQ(wrong.to_host(), std::vector<uint64_t>(64, 0));
  EXPECT_EQ(flags.to_host(), std::vector<Word>(2, kRounds));
}

TEST(Flags, StoreReleaseLoadAcquire64) { check_ping_pong<uint64_t>(release_acquire<uint64_t>); }
TEST(Flags, StoreReleaseLoadAcquire32) { check_ping_pong<uint32_t>(release_acquire<uint32_t>); }
TEST(Flags, StoreRelaxedLoadRelaxedFence64) {
  check_ping_pong<uint64_t>(relaxed_and_fence<uint64_t>);
}
TEST(Flags, StoreRelaxedLoadRelaxedFence32) {
  check_ping_pong<uint32_t>(relaxed_and_fence<uint32_t>);
}

template <class Word>
__global__ void count(Word* sum, Word* olds) {
  olds[block_id() * block_threads() + thread_id()] = fetch_add(sum, Word{3});
}

template <class Word>
void check_fetch_add(Word start) {
  const DeviceArray<Word> sum(1), olds(4 * 64);
  EXPECT_EQ(cudaMemcpy(sum.get(), &start, sizeof start, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(launch(count<Word>, 4, 64, 0, nullptr, sum.get(), olds.get()), cudaSuccess);
  std::vector<Word> host = olds.to_host();
  std::sort(host.begin(), host.end());
  for (std::size_t i = 0; i < host.size(); ++i) EXPECT_EQ(host[i], start + 3 * i);
  EXPECT_EQ(sum.to_host()[0], start + 3 * 256);
}
TEST(Flags, FetchAdd64) { check_fetch_add<uint64_t>(uint64_t{1} << 40); }
TEST(Flags, FetchAdd32) { check_fetch_add<uint32_t>(7); }

// --- Data ----------------------------------------------------------------------------------------

enum class Way { kPlain, kStreaming, kRelaxed };

template <Way kWay>
__global__ void copy(const Vec16* from, Vec16* to) {
  const int i = thread_id();
  if constexpr (kWay == Way::kPlain) store_vec(to + i, load_vec(from + i));
  if constexpr (kWay == Way::kStreaming) store_vec_streaming(to + i, load_vec_streaming(from + i));
  if constexpr (kWay == Way::kRelaxed) store_vec_relaxed(to + i, load_vec_relaxed(from + i));
}

template <Way kWay>
void check_copy() {
  constexpr std::size_t kBytes = 64 * sizeof(Vec16);
  const DeviceArray<unsigned char> from(kBytes), to(kBytes);
  std::vector<unsigned char> bytes(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<unsigned char>(i * 37 + i / 256);
  EXPECT_EQ(cudaMemcpy(from.get(), bytes.data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(launch(copy<kWay>, 1, 64, 0, nullptr, reinterpret_cast<const Vec16*>(from.get()),
                   reinterpret_cast<Vec16*>(to.get())),
            cudaSuccess);
  EXPECT_EQ(to.to_host(), bytes);
}
TEST(Data, LoadVecStoreVec) { check_copy<Way::kPlain>(); }
TEST(Data, LoadVecStoreVecStreaming) { check_copy<Way::kStreaming>(); }
TEST(Data, LoadVecStoreVecRelaxed) { check_copy<Way::kRelaxed>(); }

// --- LL and LL128 --------------------------------------------------------------------------------

TR_DEVICE uint64_t pattern(int round, int i) {
  return static_cast<uint64_t>(round) * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(i);
}

// Block 0 sends lines, block 1 sends them back: data is right when the flag is.
__global__ void ll_lines(LlLine* there, LlLine* back, uint64_t* wrong) {
  const int i = thread_id();
  for (int round = 1; round <= kRounds; ++round) {
    const auto flag = static_cast<uint32_t>(round);
    uint64_t got = 0;
    if (block_id() == 0) {
      ll_store(there + i, pattern(round, i), flag);
      while (!ll_load(back + i, flag, &got)) spin_pause();
      if (got != ~pattern(round, i)) wrong[i] += 1;
    } else {
      while (!ll_load(there + i, flag, &got)) spin_pause();
      if (got != pattern(round, i)) wrong[64 + i] += 1;
      ll_store(back + i, ~got, flag);
    }
  }
}

TEST(Ll, StoreAndLoad) {
  const DeviceArray<LlLine> lines(128);
  const DeviceArray<uint64_t> wrong(128);
  EXPECT_EQ(cudaMemset(lines.get(), 0, 128 * sizeof(LlLine)), cudaSuccess);
  EXPECT_EQ(cudaMemset(wrong.get(), 0, 128 * sizeof(uint64_t)), cudaSuccess);
  ASSERT_EQ(launch(ll_lines, 2, 64, 0, nullptr, lines.get(), lines.get() + 64, wrong.get()),
            cudaSuccess);
  EXPECT_EQ(wrong.to_host(), std::vector<uint64_t>(128, 0));
}

// A line counts only if both halves have the flag.
__global__ void ll_half(LlLine* line, int* out) {
  uint64_t got = 0;
  ll_store(line, 0x1122334455667788, 5);
  out[0] = ll_load(line, 5, &got) && got == 0x1122334455667788 ? 1 : 0;
  out[1] = ll_load(line, 6, &got) ? 1 : 0;
  line->flag0 = 6;
  out[2] = ll_load(line, 6, &got) ? 1 : 0;
  line->flag1 = 6;
  out[3] = ll_load(line, 6, &got) ? 1 : 0;
}
TEST(Ll, BothFlagsCount) {
  const DeviceArray<LlLine> line(1);
  const DeviceArray<int> out(4);
  ASSERT_EQ(launch(ll_half, 1, 1, 0, nullptr, line.get(), out.get()), cudaSuccess);
  EXPECT_EQ(out.to_host(), (std::vector<int>{1, 0, 0, 1}));
}

__global__ void ll128_lines(Vec16* there, Vec16* back, uint64_t* wrong) {
  const int lane = lane_id();
  for (int round = 1; round <= kRounds; ++round) {
    const auto flag = static_cast<uint64_t>(round);
    const Vec16 sent = {pattern(round, 2 * lane), pattern(round, 2 * lane + 1)};
    Vec16 got = {};
    if (block_id() == 0) {
      ll128_store(there, sent, flag);
      while (!ll128_arrived(back, flag)) spin_pause();
      got = ll128_load(back);
    } else {
      while (!ll128_arrived(there, flag)) spin_pause();
      got = ll128_load(there);
      ll128_store(back, got, flag);
    }
    const bool is_right = got.lo == sent.lo && got.hi == (ll128_has_flag() ? flag : sent.hi);
    if (!is_right) wrong[block_id() * kWarpSize + lane] += 1;
    sync_warp();
  }
}

TEST(Ll128, StoreArrivedLoad) {
  const DeviceArray<Vec16> lines(64);
  const DeviceArray<uint64_t> wrong(64);
  EXPECT_EQ(cudaMemset(lines.get(), 0, 64 * sizeof(Vec16)), cudaSuccess);
  EXPECT_EQ(cudaMemset(wrong.get(), 0, 64 * sizeof(uint64_t)), cudaSuccess);
  ASSERT_EQ(launch(ll128_lines, 2, 32, 0, nullptr, lines.get(), lines.get() + 32, wrong.get()),
            cudaSuccess);
  EXPECT_EQ(wrong.to_host(), std::vector<uint64_t>(64, 0));
}

// One line of four without the flag is enough for "not yet", on all lanes.
__global__ void ll128_missing(Vec16* lines, int* out) {
  ll128_store(lines, Vec16{}, 9);
  sync_warp();
  out[lane_id()] = ll128_arrived(lines, 9) ? 1 : 0;
  sync_warp();
  if (lane_id() == 23) lines[23].hi = 8;
  sync_warp();
  out[32 + lane_id()] = ll128_arrived(lines, 9) ? 1 : 0;
  out[64 + lane_id()] = ll128_has_flag() ? 1 : 0;
}
TEST(Ll128, AllFlagsCount) {
  const DeviceArray<Vec16> lines(32);
  const DeviceArray<int> out(96);
  ASSERT_EQ(launch(ll128_missing, 1, 32, 0, nullptr, lines.get(), out.get()), cudaSuccess);
  const std::vector<int> host = out.to_host();
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(host[lane], 1);
    EXPECT_EQ(host[32 + lane], 0);
    EXPECT_EQ(host[64 + lane], lane % 8 == 7 ? 1 : 0);
  }
}

// --- Warps ---------------------------------------------------------------------------------------

__global__ void votes(unsigned* out, int* data) {
  const int lane = lane_id();
  unsigned* const mine = out + 8 * lane;
  mine[0] = ballot(kFullWarp, lane % 3 == 0);
  mine[1] = any(kFullWarp, lane == 31) ? 1 : 0;
  mine[2] = any(kFullWarp, lane == 32) ? 1 : 0;
  mine[3] = all(kFullWarp, lane < 32) ? 1 : 0;
  mine[4] = all(kFullWarp, lane < 31) ? 1 : 0;
  mine[5] = static_cast<unsigned>(shuffle(kFullWarp, lane * 7, 5));
  mine[6] =
      static_cast<unsigned>(shuffle_xor(kFullWarp, static_cast<uint64_t>(lane) << 33, 3) >> 33);
  data[lane] = lane;
  sync_warp();
  mine[7] = static_cast<unsigned>(data[(lane + 1) % 32]);
}

TEST(Warps, BallotAnyAllShuffleShuffleXorSyncWarp) {
  const DeviceArray<unsigned> out(8 * 32);
  const DeviceArray<int> data(32);
  ASSERT_EQ(launch(votes, 1, 32, 0, nullptr, out.get(), data.get()), cudaSuccess);
  const std::vector<unsigned> host = out.to_host();
  unsigned thirds = 0;
  for (unsigned lane = 0; lane < 32; lane += 3) thirds |= 1u << lane;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned* mine = host.data() + 8 * lane;
    EXPECT_EQ(std::vector<unsigned>(mine, mine + 8),
              (std::vector<unsigned>{thirds, 1, 0, 1, 0, 35, lane ^ 3, (lane + 1) % 32}));
  }
}

// --- Blocks --------------------------------------------------------------------------------------

// Two halves of a block meet at barriers of their own, a different number of times.
__global__ void named_barriers(int* data, int* out) {
  const int half = thread_id() / 64, i = thread_id() % 64;
  int* const mine = data + 64 * half;
  int value = i;
  for (int round = 0; round < 3 + 4 * half; ++round) {
    mine[i] = value;
    barrier_sync(1 + half, 64);
    value = mine[(i + 1) % 64];
    barrier_sync(1 + half, 64);
  }
  out[thread_id()] = value;
  out[128 + thread_id()] = barrier_or(1 + half, 64, thread_id() == 100) ? 1 : 0;
}
TEST(Blocks, BarrierSyncBarrierOr) {
  const DeviceArray<int> data(128), out(256);
  ASSERT_EQ(launch(named_barriers, 1, 128, 0, nullptr, data.get(), out.get()), cudaSuccess);
  const std::vector<int> host = out.to_host();
  for (int t = 0; t < 128; ++t) {
    EXPECT_EQ(host[t], (t % 64 + (t < 64 ? 3 : 7)) % 64);
    EXPECT_EQ(host[128 + t], t < 64 ? 0 : 1);
  }
}

__global__ void use_shared(uint64_t* out, int words) {
  auto* const shared = reinterpret_cast<uint64_t*>(dynamic_shared());
  if (thread_id() == 0) out[words] = reinterpret_cast<std::uintptr_t>(shared) % 128;
  for (int i = thread_id(); i < words; i += block_threads()) shared[i] = pattern(1, i);
  __syncthreads();
  for (int i = thread_id(); i < words; i += block_threads()) out[i] = shared[words - 1 - i];
}

TEST(Blocks, DynamicSharedAllowSharedLoadBlocksPerSm) {
  constexpr int kWords = (64 << 10) / 8;  // more than a kernel has unasked
  const DeviceArray<uint64_t> out(kWords + 1);
  EXPECT_EQ(load(use_shared), cudaSuccess);
  EXPECT_EQ(allow_shared(use_shared, kWords * 8), cudaSuccess);
  int blocks = 0;
  EXPECT_EQ(blocks_per_sm(&blocks, use_shared, 256, kWords * 8), cudaSuccess);
  EXPECT_GE(blocks, 1);
  EXPECT_LE(blocks, 8);
  ASSERT_EQ(launch(use_shared, 1, 256, kWords * 8, nullptr, out.get(), kWords), cudaSuccess);
  const std::vector<uint64_t> host = out.to_host();
  EXPECT_EQ(host[kWords], 0u);
  for (int i = 0; i < kWords; ++i) {
    ASSERT_EQ(host[i], 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(kWords - 1 - i));
  }
}

// A clock for deadlines: it goes forward, in nanoseconds.
__global__ void wait_a_while(uint64_t* out, uint64_t ns) {
  const uint64_t begin = timer_ns();
  uint64_t now = begin;
  while (now - begin < ns) {
    spin_pause();
    const uint64_t next = timer_ns();
    if (next < now) out[1] = 1;
    now = next;
  }
  out[0] = now - begin;
}
TEST(Blocks, TimerNs) {
  const DeviceArray<uint64_t> out(2);
  EXPECT_EQ(cudaMemset(out.get(), 0, 2 * sizeof(uint64_t)), cudaSuccess);
  cudaEvent_t begin, end;
  ASSERT_EQ(cudaEventCreate(&begin), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(begin, nullptr), cudaSuccess);
  ASSERT_EQ(launch(wait_a_while, 1, 1, 0, nullptr, out.get(), uint64_t{20'000'000}), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(end, nullptr), cudaSuccess);
  expect_done();
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
  const std::vector<uint64_t> host = out.to_host();
  EXPECT_EQ(host[1], 0u);
  EXPECT_GE(host[0], 20'000'000u);
  EXPECT_GE(ms, 19.0f);
  EXPECT_EQ(cudaEventDestroy(begin), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
}

}  // namespace
