#include "transports/cuda_ipc/slab.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/cuda_stream.hpp"
#include "transports/cuda_ipc/vmm.hpp"

namespace treering::cuda_ipc {
namespace {

constexpr std::uint32_t kLine = 128;  // what flags of different writers keep apart; LL128's too

std::size_t link_bytes(std::uint32_t slot_bytes) {
  return 2 * kLine + std::size_t{kDeviceSlots} * slot_bytes;
}

}  // namespace

std::size_t SlabLayout::protocol_bytes(DeviceProtocol protocol) const {
  const std::uint32_t bytes = slot_bytes[static_cast<int>(protocol)];
  const auto links = static_cast<std::size_t>(channels * device_link_classes(protocol) * size);
  return bytes > 0 ? links * link_bytes(bytes) : 0;
}

SlabLayout::End SlabLayout::end(DeviceProtocol protocol, int channel, DeviceLinkClass cls,
                                int peer) const {
  std::size_t at = links();
  for (int p = 0; p < static_cast<int>(protocol); ++p) at += protocol_bytes(DeviceProtocol(p));
  const auto index = static_cast<std::size_t>(
      (channel * device_link_classes(protocol) + static_cast<int>(cls)) * size + peer);
  at += index * link_bytes(slot_bytes[static_cast<int>(protocol)]);
  return {at, at + kLine, at + 2 * kLine};
}

std::uint32_t SlabLayout::whole_lines(std::uint32_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

std::size_t SlabLayout::gone(int peer) { return static_cast<std::size_t>(peer) * kLine; }

std::size_t SlabLayout::hello(int peer) const {
  return static_cast<std::size_t>(size + peer) * kLine;
}

std::size_t SlabLayout::stream_words() const { return static_cast<std::size_t>(2 * size) * kLine; }

std::size_t SlabLayout::links() const {
  const std::size_t words = sizeof(std::uint64_t) * static_cast<std::size_t>(kStreamStages * size);
  return stream_words() + (words + kLine - 1) / kLine * kLine;
}

std::size_t SlabLayout::ends() const {
  std::size_t at = links();
  for (int p = 0; p < kNumDeviceProtocols; ++p) at += protocol_bytes(DeviceProtocol(p));
  return at;
}

std::size_t SlabLayout::junctions() const {
  const std::size_t bytes =
      sizeof(DeviceLinkEnds) *
      static_cast<std::size_t>(kNumDeviceProtocols * channels * kNumDeviceLinkClasses * size);
  return ends() + (bytes + kLine - 1) / kLine * kLine;
}

std::size_t SlabLayout::bytes() const {
  return junctions() + sizeof(DeviceJunction) * static_cast<std::size_t>(channels + 1);
}

struct Slab::Memory {
  int device = 0;
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  std::optional<VmmMemory> vmm;  // where it lies, with Sharing::kFile
  std::vector<int> writers;      // whose gone flags lie at the start
};

// The slabs of this process that wait for their next use. Never destroyed: the driver frees what is
// left when the process ends.
struct Slab::Keeper {
  std::mutex mutex;
  std::vector<std::unique_ptr<Memory>> kept;

  static Keeper& instance() {
    static Keeper* const keeper = new Keeper;
    return *keeper;
  }
  // One that is large enough, of this device, and that nobody can still write to.
  std::unique_ptr<Memory> take(int device, std::size_t bytes, Sharing sharing,
                               const CudaStream& stream) {
    std::lock_guard lock(mutex);
    for (auto it = kept.begin(); it != kept.end(); ++it) {
      const Memory& memory = **it;
      if (memory.device != device || memory.bytes != bytes ||
          memory.vmm.has_value() != (sharing == Sharing::kFile) || !is_quiet(memory, stream)) {
        continue;
      }
      std::unique_ptr<Memory> found = std::move(*it);
      kept.erase(it);
      return found;
    }
    return nullptr;
  }
  static bool is_quiet(const Memory& memory, const CudaStream& stream) {
    if (memory.writers.empty()) return true;
    const int last = *std::max_element(memory.writers.begin(), memory.writers.end());
    std::vector<std::byte> flags(SlabLayout::gone(last + 1));
    if (!stream.copy(flags.data(), memory.base, flags.size()).ok()) return false;
    return std::all_of(memory.writers.begin(), memory.writers.end(),
                       [&](int r) { return flags[SlabLayout::gone(r)] != std::byte{0}; });
  }
};

Slab::Slab(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}

Slab::Slab(Slab&&) noexcept = default;
Slab& Slab::operator=(Slab&&) noexcept = default;

Slab::~Slab() {
  if (memory_ == nullptr) return;
  Keeper& keeper = Keeper::instance();
  std::lock_guard lock(keeper.mutex);
  keeper.kept.push_back(std::move(memory_));
}

Result<Slab> Slab::make(const SlabLayout& layout, Sharing sharing) {
  auto memory = std::make_unique<Memory>();
  TR_RETURN_IF_ERROR(cuda_status(cudaGetDevice(&memory->device), "cudaGetDevice"));
  TR_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::make());
  memory->bytes = layout.bytes();
  if (std::unique_ptr<Memory> kept =
          Keeper::instance().take(memory->device, memory->bytes, sharing, stream)) {
    memory = std::move(kept);
  } else if (sharing == Sharing::kFile) {
    TR_ASSIGN_OR_RETURN(memory->vmm, VmmMemory::make(memory->device, memory->bytes));
    memory->base = memory->vmm->base();
  } else {
    void* base = nullptr;
    TR_RETURN_IF_ERROR(cuda_status(
        cudaMalloc(&base, memory->bytes),
        "cudaMalloc of " + std::to_string(memory->bytes) + " bytes for the links of this rank"));
    memory->base = static_cast<std::byte*>(base);
  }
  memory->writers.clear();
  Slab slab(std::move(memory));
  TR_RETURN_IF_ERROR(stream.clear(slab.base(), layout.bytes()));
  return slab;
}

void Slab::set_writers(std::vector<int> writers) { memory_->writers = std::move(writers); }

std::byte* Slab::base() const { return memory_->base; }
std::size_t Slab::bytes() const { return memory_->vmm ? memory_->vmm->bytes() : memory_->bytes; }

SlabAddress Slab::address() const {
  SlabAddress address;
  address.base = base();
  address.bytes = bytes();
  if (memory_->vmm) {
    address.memory = memory_->vmm->handle();
  } else {
    // Where it fails, peers in other processes will say that they cannot open it.
    (void)cudaIpcGetMemHandle(&address.handle, base());
    (void)cudaGetLastError();
  }
  return address;
}

Result<UniqueFd> Slab::file() const { return memory_->vmm->file(); }

}  // namespace treering::cuda_ipc
