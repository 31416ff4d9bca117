// What the device engines of a process share: room for blocks on its devices, and host memory that
// kernels see.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#include <map>
#include <mutex>
#include <vector>

#include "core/device_link.hpp"
#include "core/status.hpp"

namespace treering {

// The devices that communicators of this process run on: how many blocks each holds at once, and
// how many of them are reserved.
class BlockBudget {
 public:
  static BlockBudget& instance();
  // What the current device, which is `device`, holds, and what is reserved: blocks of
  // cuda::kMaxThreads threads. The first call for a device loads the kernels there.
  struct Blocks {
    int capacity = 0;  // 0: the kernels are not loaded
    int reserved = 0;
  };
  Result<Blocks> look(int device);
  // Of the current device, again.
  Status reserve(int device, int blocks);
  void give_back(int device, int blocks);

 private:
  static Status load(int device, int* capacity);
  Result<Blocks*> loaded(int device);

  std::mutex mutex_;
  std::map<int, Blocks> devices_;
};

// Host memory that the device sees: reports of kernels, the flag that tells them to give up, and
// what streams of copies say (engine/cuda_copy_engine.hpp).
struct SharedWithKernels {
  std::uint32_t abort;
  std::uint64_t awaited;                   // the value that a stream waits for; 0: none
  std::uint64_t copies_done;               // calls
  std::uint64_t landing[kMaxDeviceRanks];  // of words that the host wants to read
  DeviceReport reports[1];                 // one for each block that the communicator has reserved
};

// Freeing pinned memory waits for all that runs on all devices, other communicators' kernels too,
// and those may wait for the rank that frees: so it is kept for the next communicator, as slabs
// are (transports/cuda_ipc/slab.hpp).
class SharedPool {
 public:
  static SharedPool& instance();
  Result<SharedWithKernels*> take(int blocks);
  void give_back(SharedWithKernels* shared, int blocks);

 private:
  struct Kept {
    SharedWithKernels* shared;
    int blocks;
  };
  std::mutex mutex_;
  std::vector<Kept> kept_;
};

}  // namespace treering
