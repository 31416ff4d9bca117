// Slab: one rank's device memory of a communicator, which its peers' kernels write into.
//
// Freeing device memory waits for everything that runs on the device, other communicators' kernels
// too, and those may wait for a rank that is just about to free: so slabs are never freed but kept
// for the next communicator of the process that needs one as large. A slab may be used again when
// every peer has said that it is done with it (gone flags, in the slab): a peer's last store, a
// release of a slot, comes after this rank has got all it waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>
#include <memory>
#include <vector>

#include "core/device_link.hpp"
#include "core/status.hpp"
#include "core/unique_fd.hpp"
#include "transports/device_links.hpp"

namespace treering::cuda_ipc {

// Where things lie in a slab; the same on all ranks. A slab of pinned memory (pinned.hpp) is laid
// out alike, for those few ranks that write there, and has no `ends` and no `junctions`.
struct SlabLayout {
  int size = 0;  // ranks that write there
  int channels = 0;
  std::uint32_t slot_bytes[kNumDeviceProtocols] = {};  // whole_lines of something

  static std::uint32_t whole_lines(std::uint32_t bytes);  // at least so many
  // Of the link end that this rank shares with `peer`: the tails and slots of what the peer sends,
  // the head of what it receives.
  struct End {
    std::size_t tails = 0;
    std::size_t head = 0;
    std::size_t slots = 0;
  };
  End end(DeviceProtocol protocol, int channel, DeviceLinkClass cls, int peer) const;
  static std::size_t gone(int peer);  // a 64-bit flag that the peer sets when it leaves
  std::size_t hello(int peer) const;  // 64 bits that the peer writes to show that it can
  std::size_t stream_words() const;   // DeviceLinks::stream_words
  std::size_t ends() const;           // DeviceLinkEnds of the rank itself
  std::size_t junctions() const;      // its DeviceJunctions
  std::size_t bytes() const;

 private:
  std::size_t links() const;                                  // the first of them
  std::size_t protocol_bytes(DeviceProtocol protocol) const;  // of all its links
};

// How a slab goes to other processes: as a file descriptor (vmm.hpp), or as a handle of CUDA IPC.
enum class Sharing : std::uint8_t { kFile, kHandle };

// What peers must know to reach a slab. Plain bytes.
struct SlabAddress {
  std::byte* base = nullptr;  // in its process
  std::size_t bytes = 0;
  CUmemGenericAllocationHandle memory = 0;  // kFile: in its process
  cudaIpcMemHandle_t handle = {};           // kHandle: in other processes
};

class Slab {
 public:
  // Zeroed memory of the current device, which nobody else knows yet.
  static Result<Slab> make(const SlabLayout& layout, Sharing sharing);
  // Those who must have said that they are gone before the memory is used again.
  void set_writers(std::vector<int> writers);
  Slab(Slab&&) noexcept;
  Slab& operator=(Slab&&) noexcept;
  ~Slab();

  std::byte* base() const;
  std::size_t bytes() const;
  SlabAddress address() const;
  Result<UniqueFd> file() const;  // kFile: to be handed over

 private:
  struct Memory;
  struct Keeper;
  explicit Slab(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;  // given to the keeper at the end
};

}  // namespace treering::cuda_ipc
