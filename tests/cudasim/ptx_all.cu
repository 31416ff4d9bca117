// Every function of ptx*.cuh once, for test_ptx.py.
#include "algos/cuda/launch.cuh"
#include "algos/cuda/ptx_memory.cuh"

using namespace treering::cuda;

__global__ void flags(std::uint64_t* a, std::uint32_t* b) {
  while (load_acquire(a) < 1) spin_pause();
  while (load_acquire(b) < 1) spin_pause();
  store_release(a, 2);
  store_release(b, 2u);
  store_relaxed(a + 1, load_relaxed(a + 2));
  store_relaxed(b + 1, load_relaxed(b + 2));
  a[3] = fetch_add(a + 4, 1);
  b[3] = fetch_add(b + 4, 1u);
  fence_system();
}

__global__ void data(Vec16* v) {
  store_vec(v, load_vec(v + 1));
  store_vec_streaming(v + 2, load_vec_streaming(v + 3));
  store_vec_relaxed(v + 4, load_vec_relaxed(v + 5));
}

__global__ void lines(LlLine* narrow, Vec16* wide) {
  std::uint64_t value = 0;
  while (!ll_load(narrow, 3, &value)) spin_pause();
  ll_store(narrow + 1, value, 4);
  while (!ll128_arrived(wide, 5)) spin_pause();
  ll128_store(wide + kWarpSize, ll128_load(wide), 6);
}

__global__ void groups(std::uint64_t* out) {
  const std::uint64_t value = out[thread_id()];
  barrier_sync(1, 64);
  sync_warp();
  out[thread_id()] =
      (barrier_or(2, 64, value == 3) ? 1 : 0) + shuffle(kFullWarp, value, 3) +
      static_cast<std::uint64_t>(shuffle_xor(kFullWarp, 1.5f, 3)) +
      (any(kFullWarp, value == 1) ? 1 : 0) + (all(kFullWarp, value == 2) ? 1 : 0) +
      ballot(kFullWarp, value == 5) + timer_ns() +
      static_cast<std::uint64_t>(dynamic_shared()[thread_id()]) +
      static_cast<std::uint64_t>(warp_id() + block_id() + grid_blocks() + block_threads());
}

cudaError_t start(std::uint64_t* out, cudaStream_t stream) {
  int blocks = 0;
  cudaError_t error = allow_shared(groups, 100000);
  if (error == cudaSuccess) error = blocks_per_sm(&blocks, groups, 64, 100000);
  return error == cudaSuccess ? launch(groups, blocks, 64, 100000, stream, out) : error;
}
