#include "engine/cuda_resources.hpp"

#include <string>

#include "algos/cuda/kernels.hpp"
#include "core/cuda_status.hpp"
#include "engine/device_room.hpp"

namespace treering {

BlockBudget& BlockBudget::instance() {
  static BlockBudget* const budget = new BlockBudget;
  return *budget;
}

// CUDA loads a kernel when it is first used, and to do so may wait for all that runs on the device:
// for a kernel that waits for this very rank, perhaps. So all kernels are loaded before the first
// of them runs.
Status BlockBudget::load(int device, int* capacity) {
  const auto error = static_cast<cudaError_t>(cuda::load_kernels(capacity));
  const Status status =
      cuda_status(error, "loading the kernels on device " + std::to_string(device));
  if (error != cudaErrorNoKernelImageForDevice) return status;
  int major = 0, minor = 0;
  (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return status.with_context("this library was built without -Dgpu_archs=sm_" +
                             std::to_string(major * 10 + minor));
}

Result<BlockBudget::Blocks*> BlockBudget::loaded(int device) {
  Blocks& d = devices_[device];
  if (d.capacity == 0) TR_RETURN_IF_ERROR(load(device, &d.capacity));
  return &d;
}

Result<BlockBudget::Blocks> BlockBudget::look(int device) {
  std::lock_guard lock(mutex_);
  TR_ASSIGN_OR_RETURN(const Blocks* d, loaded(device));
  return *d;
}

// Fails only if another communicator was quicker: the channels were chosen to fit
// (device_room.hpp).
Status BlockBudget::reserve(int device, int blocks) {
  std::lock_guard lock(mutex_);
  TR_ASSIGN_OR_RETURN(Blocks* const room, loaded(device));
  Blocks& d = *room;
  if (d.reserved + blocks > d.capacity) {
    return unsupported(
        "device " + std::to_string(device) + " holds " + std::to_string(d.capacity) +
        " blocks at once, of which the communicators of this process have reserved " +
        std::to_string(d.reserved) + "; this one needs " + std::to_string(blocks) +
        ": destroy some, or set TR_CUDA_CHANNELS to less");
  }
  d.reserved += blocks;
  return {};
}

void BlockBudget::give_back(int device, int blocks) {
  std::lock_guard lock(mutex_);
  devices_[device].reserved -= blocks;
}

Result<DeviceRoom> device_room() {
  DeviceRoom room;
  int device = 0;
  TR_ASSIGN_OR_RETURN(room.process, process_token());
  TR_RETURN_IF_ERROR(cuda_status(cudaGetDevice(&device), "cudaGetDevice"));
  TR_RETURN_IF_ERROR(cuda_status(cudaDeviceGetPCIBusId(room.bus_id, sizeof room.bus_id, device),
                                 "cudaDeviceGetPCIBusId"));
  TR_ASSIGN_OR_RETURN(const BlockBudget::Blocks blocks, BlockBudget::instance().look(device));
  room.blocks = blocks.capacity;
  room.reserved = blocks.reserved;
  return room;
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
