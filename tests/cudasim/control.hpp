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
