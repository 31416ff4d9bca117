// Device memory of the emulator (tests/cudasim), which host code may touch.
#include <cuda_runtime.h>
#include <map>
#include <vector>

#include "engine/device_engine.hpp"
#include "matrix/cell.hpp"

namespace treering::test {
namespace {

// Kept for the next buffer as large: freeing device memory waits for the kernels of all ranks on
// the device, and those may wait for the rank that frees.
using Free = std::map<std::size_t, std::vector<std::byte*>>;
thread_local Free t_free;

std::size_t rounded(std::size_t bytes) { return (bytes / 4096 + 1) * 4096; }

}  // namespace

Memory take_memory(std::size_t bytes) {
  std::vector<std::byte*>& kept = t_free[rounded(bytes)];
  if (kept.empty()) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, rounded(bytes)) != cudaSuccess) std::abort();
    kept.push_back(static_cast<std::byte*>(memory));
  }
  Memory memory(kept.back(), {bytes});
  kept.pop_back();
  return memory;
}

void GiveBack::operator()(std::byte* memory) const { t_free[rounded(bytes)].push_back(memory); }

bool serves_memory(const Cell& cell) {
  return cell.op != CellOp::kCompose &&
         device_has(cell.algorithm->collective, cell.algorithm->name, DeviceProtocol::kSimple);
}

}  // namespace treering::test
