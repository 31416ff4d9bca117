// Where a worker's buffers lie, on the host or on a GPU, and the clock of the operations on them.
//
// host_memory() is always there. GPU memory is there where the build has CUDA: cuda_memory.cpp, or
// no_cuda_memory.cpp, which says that it has not. A worker has one of them, used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "perf/failure.hpp"

namespace treering::perf {

class Memory {
 public:
  virtual ~Memory() = default;

  // The two buffers that all cases use, page-aligned, every page written. Called once.
  virtual Failure allocate(std::size_t bytes, void** a, void** b) = 0;
  virtual Failure set(void* at, unsigned char value, std::size_t bytes) = 0;
  // What `fill` writes into host memory of so many bytes becomes what is at `at`.
  virtual Failure write(void* at, std::size_t bytes, const std::function<void(void*)>& fill) = 0;
  // Shows what is at `at` after all operations that were enqueued.
  virtual Failure read(const void* at, std::size_t bytes,
                       const std::function<void(const void*)>& look) = 0;

  // The clock: what is enqueued between begin() and end(). elapsed() waits for it.
  virtual Failure begin() = 0;
  virtual Failure end() = 0;
  virtual Failure elapsed(std::uint64_t* ns) = 0;

  // The stream of all operations, a cudaStream_t; nullptr on the host.
  virtual void* stream() const { return nullptr; }
  // "NVIDIA H200"; empty on the host.
  virtual std::string device() const { return {}; }
  // GPUs of this machine, and this worker's.
  virtual int devices() const { return 0; }
  virtual int device_number() const { return 0; }
  // How fast the device copies its own memory: bytes copied per nanosecond (GB/s), each of which is
  // read once and written once. 0 on the host.
  virtual Failure measure_copy(double* gb_s);
};

Memory& host_memory();

// Memory of the GPU `rank` mod their number, which becomes the thread's current one.
Failure make_cuda_memory(int rank, std::unique_ptr<Memory>* out);
// Why there can be none here: no CUDA in this build, no driver, no GPU.
Failure why_no_cuda();

}  // namespace treering::perf
