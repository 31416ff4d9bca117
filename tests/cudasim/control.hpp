// What tests can ask of the emulator beyond CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <string>

namespace cudasim {

// The nth call of `name` from now on fails, once (nth <= 0: no call does). The environment's form:
// CUDASIM_FAIL=cudaMalloc:3,cudaEventCreate:1:46 (46: the error's number).
void fail_call(const std::string& name, int nth, cudaError_t error);

// From the next launch on; 0: threads run in turn.
void set_seed(std::uint64_t seed);

// From the next question on; false: devices reach each other over PCIe.
void set_nvlink(bool nvlink);

// From the next question on; false: devices have no virtual memory functions (cuMemCreate).
void set_vmm(bool vmm);

// What is wrong between two devices, both ways. A device and itself, too: its memory as other
// processes see it, say in containers.
enum class Between : std::uint8_t {
  kWorks,
  kNoAccess,   // no peer access
  kNoHandles,  // handles of the other's memory cannot be opened
  kLoses,      // copies end, and nothing arrives
  kHangs,      // copies do not end until this is changed
};
// From now on. The environment's form: CUDASIM_BETWEEN=0-1:no-access,0-2:no-handles,2-3:loses,
// 1-3:hangs
void set_between(int device, int other, Between what);
// From the next call on; false: no device has stream memory operations.
void set_mem_ops(bool mem_ops);

// Kernels that this process has launched so far. One that was captured counts when it is captured.
std::uint64_t launches();

// What was made and not yet destroyed.
struct Live {
  std::size_t allocations = 0;  // all kinds of memory, IPC mappings and registrations too
  std::size_t streams = 0;
  std::size_t events = 0;
  std::size_t graphs = 0;  // executable ones too
  bool operator==(const Live&) const = default;
};
Live live();

}  // namespace cudasim
