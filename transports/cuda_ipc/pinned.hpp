// PinnedSlab: links between GPUs that do not reach each other's memory lie in memory of the host,
// pinned, which both of them map. As a slab (slab.hpp), it belongs to the rank that reads there.
//
// Unpinning waits for everything that runs on all devices, kernels of other communicators too, and
// those may wait for a rank that is just about to unpin: so memory that was pinned stays so, and
// is kept for the next communicator that needs as much.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/status.hpp"
#include "transports/cuda_ipc/slab.hpp"
#include "transports/segment.hpp"

namespace treering::cuda_ipc {

// What a rank tells of its own. Plain bytes.
struct PinnedAddress {
  SegmentKey key;
  std::size_t bytes = 0;
};

// Pins the memory for all devices, once a process; its address for the current device.
Result<std::byte*> pin(const std::shared_ptr<Segment>& segment);

class PinnedSlab {
 public:
  // Zeroed, and nobody else knows it yet.
  static Result<PinnedSlab> make(std::size_t bytes);
  // As Slab::set_writers.
  void set_writers(std::vector<int> writers);
  PinnedSlab(PinnedSlab&&) noexcept;
  PinnedSlab& operator=(PinnedSlab&&) noexcept;
  ~PinnedSlab();

  std::byte* on_host() const;
  std::byte* on_device() const;  // that was current in make()
  int file() const;              // to be handed over
  PinnedAddress address() const;

 private:
  struct Memory;
  struct Keeper;
  PinnedSlab(std::unique_ptr<Memory> memory, std::byte* on_device);
  std::unique_ptr<Memory> memory_;  // given to the keeper at the end
  std::byte* on_device_;
};

}  // namespace treering::cuda_ipc
