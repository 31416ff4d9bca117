// DeviceLinks: the links between the GPUs' memories of a communicator's ranks, as kernels see them
// (core/device_link.hpp). Beside the host's transport, which goes on carrying boards and host data.
//
// No CUDA header: builds without CUDA have this interface, and a connect that finds no GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/device_link.hpp"
#include "core/status.hpp"
#include "transports/window_map.hpp"

namespace treering {

class Rendezvous;  // bootstrap/rendezvous.hpp

// Must be equal on all ranks.
struct DeviceLinkOptions {
  int channels = 4;
  // Of a slot, of each protocol, in whole lines of 128 bytes; kDeviceSlots slots a link.
  std::uint32_t slot_bytes[kNumDeviceProtocols] = {64 << 10, 16 << 10, 32 << 10};
  std::string host_id;  // as in TransportOptions
  bool strict = false;  // links that cannot be made are an error, not a reason to do without GPUs
};

class DeviceLinks {
 public:
  virtual ~DeviceLinks() = default;
  // In the memory of device().
  virtual const DeviceLinkTable& table() const = 0;
  virtual int rank() const = 0;
  virtual int device() const = 0;
  // "peer memory of device 1 (CUDA IPC)"
  virtual std::string describe(int peer) const = 0;
  virtual std::size_t device_bytes() const = 0;  // of device memory that this rank gave
  // LL128 is legal if every link keeps lines of 128 bytes whole: within a GPU, and over NVLink.
  // Empty, or why it is not; the same text on all ranks.
  virtual const std::string& why_no_ll128() const = 0;

  // Collective over the ranks: maps [ptr, ptr + bytes) of every rank's device memory, as
  // Transport::map_windows does the host's. It may begin anywhere in an allocation by cudaMalloc on
  // device(), which must not be freed as long as any rank's map lives. Either all ranks get it or
  // none: what one rank brings that cannot be mapped is an error on all, which names the rank.
  virtual Result<WindowMap> map_windows(void* ptr, std::size_t bytes,
                                        Rendezvous& rendezvous) const = 0;
};

// Collective over the ranks of `rendezvous`; each rank brings its thread's current CUDA device.
// Every link is tried with data. nullptr on every rank, and one line that says why, where a rank
// has no GPU or a pair of them cannot reach each other's memory.
Result<std::unique_ptr<DeviceLinks>> connect_device(Rendezvous& rendezvous,
                                                    const DeviceLinkOptions& options);

}  // namespace treering
