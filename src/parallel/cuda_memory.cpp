#include "parallel/cuda_memory.hpp"

#include <cuda_runtime.h>

namespace tr::par {
namespace {

// As cudaMalloc aligns. Sizes that differ by less share their blocks.
constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 511) / 512 * 512; }

}  // namespace

void* CudaMemory::allocate(Use, std::size_t bytes) {
  std::vector<void*>& kept = kept_[round_up(bytes)];
  void* data = nullptr;
  if (!kept.empty()) {
    data = kept.back();
    kept.pop_back();
  } else if (cudaMalloc(&data, round_up(bytes)) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return data;
}

void CudaMemory::release(Use, void* data, std::size_t bytes) {
  kept_[round_up(bytes)].push_back(data);
}

CudaMemory::~CudaMemory() {
  for (const auto& [bytes, blocks] : kept_) {
    for (void* data : blocks) (void)cudaFree(data);
  }
}

}  // namespace tr::par
