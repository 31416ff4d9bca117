// What the environment says about the emulated machine, read at the first use.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "control.hpp"

namespace cudasim {

struct Settings {
  int devices = 4;                // CUDASIM_DEVICES; 0: a driver without a device, -1: no driver
  int sms = 24;                   // CUDASIM_SMS: multiprocessors of a device
  std::size_t memory_mib = 8192;  // CUDASIM_MEMORY_MIB: memory of a device
  std::uint64_t seed = 0;         // CUDASIM_SEED: not 0: shuffle the order in which threads run
  double hang_s = 60;             // CUDASIM_HANG_S: a block that only spins so long is reported
  bool peer = true;               // CUDASIM_PEER=0: no device can reach another
  bool nvlink = true;             // CUDASIM_NVLINK=0: they do over PCIe
  bool vmm = true;                // CUDASIM_VMM=0: no virtual memory functions
  bool mem_ops = true;            // CUDASIM_MEM_OPS=0: no stream memory operations
  bool strict = false;  // CUDASIM_STRICT=1: also cudaMalloc and first uses of kernels wait
  std::string fail;     // CUDASIM_FAIL=cudaMalloc:3,cudaEventCreate:1 (see control.hpp)
  // CUDASIM_BETWEEN=0-1:no-access,2-3:loses (see control.hpp): [device][device]
  std::array<std::array<std::atomic<Between>, kMaxDevices>, kMaxDevices> between{};
};
Settings& settings();

}  // namespace cudasim
