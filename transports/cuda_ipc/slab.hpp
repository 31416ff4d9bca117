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
#include <memory>

#include "core/device_link.hpp"
#include "core/status.hpp"
#include "transports/device_links.hpp"

namespace treering::cuda_ipc {

// Where things lie in a slab; the same on all ranks.
struct SlabLayout {
  int size = 0;  // ranks
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
  std::size_t gone(int peer) const;   // a 64-bit flag that the peer sets when it leaves
  std::size_t hello(int peer) const;  // 64 bits that the peer writes to show that it can
  std::size_t ends() const;           // DeviceLinkEnds of the rank itself
  std::size_t bytes() const;

 private:
  std::size_t protocol_bytes(DeviceProtocol protocol) const;  // of all its links
};

class Slab {
 public:
  // Zeroed device memory of the current device, which nobody else knows yet.
  static Result<Slab> make(const SlabLayout& layout);
  // How many peers must have said that they are done with it before it is used again.
  void set_peers(int peers);
  Slab(Slab&&) noexcept;
  Slab& operator=(Slab&&) noexcept;
  ~Slab();

  std::byte* base() const;
  std::size_t bytes() const;

 private:
  struct Memory;
  struct Keeper;
  explicit Slab(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;  // given to the keeper at the end
};

}  // namespace treering::cuda_ipc
