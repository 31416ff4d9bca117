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
  // Links that cannot be made are an error: no pair goes through the host, nobody does without.
  bool strict = false;
  int timeout_ms = 30000;  // of the hand-over of memory; may differ between ranks
};

class DeviceLinks {
 public:
  virtual ~DeviceLinks() = default;
  // In the memory of device().
  virtual const DeviceLinkTable& table() const = 0;
  virtual int rank() const = 0;
  virtual int device() const = 0;
  // "memory of GPU 0000:17:00.0, mapped from a file descriptor (cuMem)"
  virtual std::string describe(int peer) const = 0;
  virtual std::size_t device_bytes() const = 0;  // of device memory that this rank gave
  // LL128 is legal if every link keeps lines of 128 bytes whole: within a GPU, and over NVLink, not
  // in pinned host memory.
  // Empty, or why it is not; the same text on all ranks.
  virtual const std::string& why_no_ll128() const = 0;

  // Words in the memory of rank `owner`, in this process's addresses, that streams write:
  // [stage][writer], kStreamStages of them for each writer. Zero at first. nullptr
  // where that memory is not reached.
  virtual std::uint64_t* stream_words(int owner) const = 0;

  // Collective over the ranks: maps [ptr, ptr + bytes) of every rank's device memory, as
  // Transport::map_windows does the host's. It may begin anywhere in an allocation by cudaMalloc on
  // device(), which must not be freed as long as any rank's map lives. Either all ranks get it or
  // none: what one rank brings that cannot be mapped is an error on all, which names the rank.
  virtual Result<WindowMap> map_windows(void* ptr, std::size_t bytes,
                                        Rendezvous& rendezvous) const = 0;
};

// Collective over the ranks of `rendezvous`; each rank brings its thread's current CUDA device.
// Every link is tried with data, and given up when that does not come soon. Ranks whose GPUs do not
// reach each other's memory get links in pinned host memory instead, and each a line that says why.
// nullptr on every rank, and a line that says why, where a rank has no GPU or no memory for links.
Result<std::unique_ptr<DeviceLinks>> connect_device(Rendezvous& rendezvous,
                                                    const DeviceLinkOptions& options);

}  // namespace treering
