#include "parallel/host_memory.hpp"

#include <cstdlib>

#include "treering/parallel/comm.hpp"
#include "treering/treering.h"

namespace tr::par {
namespace {

constexpr std::size_t kAlignment = 64;

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A block that may be registered is a file and a mapping of its own: too dear for what comes and
// goes, or is small.
constexpr bool is_registrable(Use use, std::size_t bytes) {
  return (use == Use::kParameters || use == Use::kGradients) && bytes >= kRegistrableBytes;
}

void* new_block(Use use, std::size_t bytes) {
  if (!is_registrable(use, bytes)) return std::aligned_alloc(kAlignment, round_up(bytes));
  void* data = nullptr;
  return tr_mem_alloc(&data, bytes) == TR_SUCCESS ? data : nullptr;
}

void free_block(bool registrable, void* data) {
  if (registrable) {
    (void)tr_mem_free(data);
  } else {
    std::free(data);
  }
}

}  // namespace

void* HostMemory::allocate(Use use, std::size_t bytes) {
  std::vector<void*>& kept = (is_registrable(use, bytes) ? registrable_ : heap_)[bytes];
  if (kept.empty()) return new_block(use, bytes);
  void* data = kept.back();
  kept.pop_back();
  kept_bytes_ -= static_cast<std::int64_t>(bytes);
  return data;
}

void HostMemory::release(Use use, void* data, std::size_t bytes) {
  if (kept_bytes_ + static_cast<std::int64_t>(bytes) > peak_bytes()) {
    free_block(is_registrable(use, bytes), data);
    return;
  }
  (is_registrable(use, bytes) ? registrable_ : heap_)[bytes].push_back(data);
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
