// Memory of a GPU.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "treering/parallel/tensor.hpp"

namespace tr::par {

// Blocks that were released are kept for the next tensor of their size, and none is freed before
// the end: freeing waits for all that runs on the device, kernels of other ranks too, which may
// wait for this one. A block may be reused at once, because its rank computes on one stream.
class CudaMemory : public Memory {
 public:
  ~CudaMemory() override;

 protected:
  void* allocate(Use use, std::size_t bytes) override;
  void release(Use use, void* data, std::size_t bytes) override;

 private:
  std::unordered_map<std::size_t, std::vector<void*>> kept_;  // by size
};

}  // namespace tr::par
