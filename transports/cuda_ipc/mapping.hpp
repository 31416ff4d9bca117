// Mapping: a peer's slab in this process's addresses, as long as the object lives.
#pragma once

#include <cstddef>
#include <cuda_runtime.h>
#include <optional>
#include <utility>

#include "core/cuda_status.hpp"
#include "transports/cuda_ipc/vmm.hpp"

namespace treering::cuda_ipc {

class Mapping {
 public:
  Mapping() = default;
  // Memory that others keep mapped.
  explicit Mapping(std::byte* base) : base_(base) {}
  explicit Mapping(VmmMemory memory) : base_(memory.base()), vmm_(std::move(memory)) {}
  static Result<Mapping> open(const cudaIpcMemHandle_t& handle) {
    void* base = nullptr;
    TR_RETURN_IF_ERROR(
        cuda_status(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess),
                    "cudaIpcOpenMemHandle"));
    Mapping mapping(static_cast<std::byte*>(base));
    mapping.is_opened_ = true;
    return mapping;
  }
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        is_opened_(std::exchange(other.is_opened_, false)),
        vmm_(std::exchange(other.vmm_, std::nullopt)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(is_opened_, other.is_opened_);
    std::swap(vmm_, other.vmm_);
    return *this;
  }
  ~Mapping() {
    if (is_opened_) (void)cudaIpcCloseMemHandle(base_);
  }

  std::byte* base() const { return base_; }
  // Stays mapped until the process ends: a copy into it hangs, and may go on some day.
  void leak() {
    is_opened_ = false;
    if (vmm_) vmm_->leak();
  }

 private:
  std::byte* base_ = nullptr;
  bool is_opened_ = false;  // by cudaIpcOpenMemHandle
  std::optional<VmmMemory> vmm_;
};

}  // namespace treering::cuda_ipc
