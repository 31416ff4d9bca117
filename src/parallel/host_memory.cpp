#include "parallel/host_memory.hpp"

#include <cstdlib>

#include "treering/treering.h"

namespace tr::par {
namespace {

constexpr std::size_t kAlignment = 64;

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void free_block(void* data, std::size_t bytes) {
  if (bytes < kRegistrableBytes) {
    std::free(data);
  } else {
    (void)tr_mem_free(data);
  } else {
    std::free(data);
  }
}

}  // namespace

void* HostMemory::allocate(std::size_t bytes) {
  std::vector<void*>& kept = kept_[bytes];
  if (!kept.empty()) {
    void* data = kept.back();
    kept.pop_back();
    kept_bytes_ -= static_cast<std::int64_t>(bytes);
    return data;
  }
  if (bytes < kRegistrableBytes) return std::aligned_alloc(kAlignment, round_up(bytes));
  void* data = nullptr;
  return tr_mem_alloc(&data, bytes) == TR_SUCCESS ? data : nullptr;
}

void HostMemory::release(Use use, void* data, std::size_t bytes) {
  if (kept_bytes_ + static_cast<std::int64_t>(bytes) > peak_bytes()) {
    free_block(is_registrable(use), data);
    return;
  }
  (is_registrable(use) ? registrable_ : heap_)[bytes].push_back(data);
  kept_bytes_ += static_cast<std::int64_t>(bytes);
}

HostMemory::~HostMemory() {
  for (const Blocks* all : {&registrable_, &heap_}) {
    for (const auto& [bytes, blocks] : *all) {
      for (void* data : blocks) free_block(all == &registrable_, data);
    }
  }
}

void* DryMemory::allocate(Use, std::size_t bytes) {
  const std::uintptr_t at = next_;
  next_ += round_up(bytes);
  return reinterpret_cast<void*>(at);
}

}  // namespace tr::par
