#include "transports/cuda_ipc/pinned.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "core/cuda_status.hpp"
#include "core/unique_fd.hpp"

namespace treering::cuda_ipc {
namespace {

constexpr std::size_t kPageBytes = 4096;

// What is pinned in this process, and stays mapped. Never destroyed.
struct PinnedOnes {
  std::mutex mutex;
  std::map<SegmentKey, std::shared_ptr<Segment>> segments;
};
PinnedOnes& pinned_ones() {
  static PinnedOnes* const kPinned = new PinnedOnes;
  return *kPinned;
}

}  // namespace

Result<std::byte*> pin(const std::shared_ptr<Segment>& segment) {
  PinnedOnes& ones = pinned_ones();
  const std::lock_guard lock(ones.mutex);
  if (ones.segments.count(segment->key()) == 0) {
    TR_RETURN_IF_ERROR(cuda_status(
        cudaHostRegister(segment->base(), segment->bytes(),
                         cudaHostRegisterPortable | cudaHostRegisterMapped),
        "cudaHostRegister of " + std::to_string(segment->bytes()) +
            " bytes of shared memory (is the limit of locked memory, ulimit -l, low?)"));
    ones.segments[segment->key()] = segment;
  }
  void* on_device = nullptr;
  TR_RETURN_IF_ERROR(cuda_status(cudaHostGetDevicePointer(&on_device, segment->base(), 0),
                                 "cudaHostGetDevicePointer"));
  return static_cast<std::byte*>(on_device);
}

struct PinnedSlab::Memory {
  UniqueFd file;
  std::shared_ptr<Segment> segment;
  std::vector<int> writers;

  // Has everybody who could write to it said that this is over?
  bool is_quiet() const {
    for (const int writer : writers) {
      auto* const flag =
          reinterpret_cast<std::uint64_t*>(segment->base() + SlabLayout::gone(writer));
      // Pairs with the peer's stream, which stored it after all that its kernels stored.
      if (std::atomic_ref(*flag).load(std::memory_order_acquire) == 0) return false;
    }
    return true;
  }
};

// Those of this process that wait for their next use. Never destroyed.
struct PinnedSlab::Keeper {
  std::mutex mutex;
  std::vector<std::unique_ptr<Memory>> kept;

  static Keeper& instance() {
    static Keeper* const keeper = new Keeper;
    return *keeper;
  }
  std::unique_ptr<Memory> take(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    for (auto it = kept.begin(); it != kept.end(); ++it) {
      if ((*it)->segment->bytes() != bytes || !(*it)->is_quiet()) continue;
      std::unique_ptr<Memory> found = std::move(*it);
      kept.erase(it);
      return found;
    }
    return nullptr;
  }
};

PinnedSlab::PinnedSlab(std::unique_ptr<Memory> memory, std::byte* on_device)
    : memory_(std::move(memory)), on_device_(on_device) {}

PinnedSlab::PinnedSlab(PinnedSlab&&) noexcept = default;
PinnedSlab& PinnedSlab::operator=(PinnedSlab&&) noexcept = default;

PinnedSlab::~PinnedSlab() {
  if (memory_ == nullptr) return;
  Keeper& keeper = Keeper::instance();
  const std::lock_guard lock(keeper.mutex);
  keeper.kept.push_back(std::move(memory_));
}

Result<PinnedSlab> PinnedSlab::make(std::size_t bytes) {
  const std::size_t whole = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::unique_ptr<Memory> memory = Keeper::instance().take(whole);
  if (memory == nullptr) {
    memory = std::make_unique<Memory>();
    TR_ASSIGN_OR_RETURN(memory->file, create_memory_file(whole));
    TR_ASSIGN_OR_RETURN(memory->segment, Segment::map(memory->file.get(), whole));
    TR_RETURN_IF_ERROR(make_resident(memory->segment->base(), whole));
  }
  memory->writers.clear();
  std::memset(memory->segment->base(), 0, whole);
  TR_ASSIGN_OR_RETURN(std::byte* const on_device, pin(memory->segment));
  return PinnedSlab(std::move(memory), on_device);
}

void PinnedSlab::set_writers(std::vector<int> writers) { memory_->writers = std::move(writers); }

std::byte* PinnedSlab::on_host() const { return memory_->segment->base(); }
std::byte* PinnedSlab::on_device() const { return on_device_; }
int PinnedSlab::file() const { return memory_->file.get(); }
PinnedAddress PinnedSlab::address() const {
  return {memory_->segment->key(), memory_->segment->bytes()};
}

}  // namespace treering::cuda_ipc
