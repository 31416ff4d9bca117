#include "engine/cuda_resources.hpp"

#include <string>

#include "algos/cuda/kernels.hpp"
#include "core/cuda_status.hpp"

namespace treering {

BlockBudget& BlockBudget::instance() {
  static BlockBudget* const budget = new BlockBudget;
  return *budget;
}

Status BlockBudget::reserve(int device, int blocks, int threads) {
  int capacity = 0;
  TR_RETURN_IF_ERROR(
      cuda_status(static_cast<cudaError_t>(cuda::resident_blocks(threads, &capacity)),
                  "asking how many blocks the device holds"));
  std::lock_guard lock(mutex_);
  if (static_cast<std::size_t>(device) >= reserved_.size()) {
    reserved_.resize(static_cast<std::size_t>(device) + 1);
  }
  int& reserved = reserved_[static_cast<std::size_t>(device)];
  if (reserved + blocks > capacity) {
    return unsupported(
        "device " + std::to_string(device) + " holds " + std::to_string(capacity) +
        " blocks at once, of which the communicators of this process have reserved " +
        std::to_string(reserved) + "; this one needs " + std::to_string(blocks) +
        ": destroy some, or set TR_CUDA_CHANNELS to less");
  }
  reserved += blocks;
  return {};
}

void BlockBudget::give_back(int device, int blocks) {
  std::lock_guard lock(mutex_);
  reserved_[static_cast<std::size_t>(device)] -= blocks;
}

SharedPool& SharedPool::instance() {
  static SharedPool* const pool = new SharedPool;
  return *pool;
}

Result<SharedWithKernels*> SharedPool::take(int blocks) {
  std::lock_guard lock(mutex_);
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    if (it->blocks != blocks) continue;
    SharedWithKernels* const found = it->shared;
    kept_.erase(it);
    return found;
  }
  const std::size_t bytes =
      sizeof(SharedWithKernels) + sizeof(DeviceReport) * static_cast<std::size_t>(blocks);
  void* memory = nullptr;
  TR_RETURN_IF_ERROR(cuda_status(
      cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc"));
  return static_cast<SharedWithKernels*>(memory);
}

void SharedPool::give_back(SharedWithKernels* shared, int blocks) {
  std::lock_guard lock(mutex_);
  kept_.push_back({shared, blocks});
}

}  // namespace treering
