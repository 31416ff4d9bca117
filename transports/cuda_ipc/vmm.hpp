// VmmMemory: memory of a GPU by the driver's virtual memory functions (cuMemCreate). Its physical
// part goes to other processes as a file descriptor: whoever gets that may map it, in another
// container too, where the handles of CUDA IPC may be of no use.
//
// Mapping and unmapping wait for no kernel. Whoever unmaps knows that nothing is at work there.
#pragma once

#include <cstddef>
#include <cuda.h>
#include <string>

#include "core/status.hpp"
#include "core/unique_fd.hpp"

namespace treering::cuda_ipc {

class VmmMemory {
 public:
  // Empty, or why `device` has no such memory.
  static std::string why_not(int device);

  // Of `device`: at least so many bytes, which it reads and writes.
  static Result<VmmMemory> make(int device, std::size_t bytes);
  // What another process gave: for `device` to read and write. `bytes` as the owner's has.
  static Result<VmmMemory> of_file(int file, std::size_t bytes, int device);
  // The memory of another device of this process; the owner keeps `handle`.
  static Result<VmmMemory> of_handle(CUmemGenericAllocationHandle handle, std::size_t bytes,
                                     int device);

  VmmMemory(VmmMemory&& other) noexcept;
  VmmMemory& operator=(VmmMemory&& other) noexcept;
  ~VmmMemory();

  std::byte* base() const { return reinterpret_cast<std::byte*>(base_); }
  std::size_t bytes() const { return bytes_; }
  // Of memory that was made here.
  CUmemGenericAllocationHandle handle() const { return handle_; }
  Result<UniqueFd> file() const;
  // Stays mapped until the process ends.
  void leak();

 private:
  VmmMemory() = default;
  Status map(CUmemGenericAllocationHandle handle, std::size_t bytes, int device);

  CUdeviceptr base_ = 0;
  std::size_t bytes_ = 0;
  bool is_mapped_ = false;
  CUmemGenericAllocationHandle handle_ = 0;  // 0: not kept
};

}  // namespace treering::cuda_ipc
