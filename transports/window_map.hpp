// WindowMap: what a rank knows of a window, memory of every rank that every rank reaches directly.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace treering {

struct WindowMap {
  // Rank r's memory, in this process's addresses.
  std::vector<std::byte*> base;
  std::vector<std::size_t> bytes;
  // Windows of device memory: this rank's memory, in the addresses of rank r's process. A kernel
  // tells its peers where its buffers are in words that they need not look up.
  std::vector<std::byte*> seen_at;
  std::shared_ptr<void> mapping;  // keeps the peers' memory mapped
};

}  // namespace treering
