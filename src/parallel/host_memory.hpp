// Memory of the host, and of a dry run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "treering/parallel/tensor.hpp"

namespace tr::par {

// Blocks that were released are kept for the next tensor of their size: a step asks for the same
// sizes as the last one, and new pages cost more than what is computed in them. What is kept never
// exceeds what was in use at once.
class HostMemory : public Memory {
 public:
  ~HostMemory() override;

 protected:
  void* allocate(Use use, std::size_t bytes) override;
  void release(Use use, void* data, std::size_t bytes) override;

 private:
  // Blocks by size: those that may be registered, and others.
  using Blocks = std::unordered_map<std::size_t, std::vector<void*>>;
  Blocks registrable_, heap_;
  std::int64_t kept_bytes_ = 0;
};

// Addresses that nobody may touch, none of them twice at a time.
class DryMemory : public Memory {
 protected:
  void* allocate(Use use, std::size_t bytes) override;
  void release(Use, void*, std::size_t) override {}

 private:
  std::uintptr_t next_ = 1 << 12;
};

}  // namespace tr::par
