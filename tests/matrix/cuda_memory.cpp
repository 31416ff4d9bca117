// Device memory, of a GPU or of the emulator (tests/cudasim).
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/device_engine.hpp"
#include "matrix/cell.hpp"

namespace treering::test {
namespace {

// Kept for the next buffer as large: freeing device memory waits for the kernels of all ranks on
// the device, and those may wait for the rank that frees.
using Free = std::map<std::size_t, std::vector<std::byte*>>;
thread_local Free t_free;
std::mutex g_shareable_mutex;
std::vector<std::byte*> g_shareable;

// Few sizes, so that soon no memory has to be allocated while a peer's kernel runs.
std::size_t rounded(std::size_t bytes) { return std::bit_ceil(std::max<std::size_t>(bytes, 4096)); }

void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::abort();
}

// The default stream would wait for kernels of other ranks.
class CopyStream {
 public:
  CopyStream() { must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~CopyStream() { (void)cudaStreamDestroy(stream_); }
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    must(cudaMemcpyAsync(to, from, bytes, kind, stream_));
    must(cudaStreamSynchronize(stream_));
  }

 private:
  cudaStream_t stream_ = nullptr;
};
CopyStream& copy_stream() {
  thread_local CopyStream stream;
  return stream;
}

}  // namespace

Memory take_memory(std::size_t bytes) {
  std::vector<std::byte*>& kept = t_free[rounded(bytes)];
  if (kept.empty()) {
    void* memory = nullptr;
    must(cudaMalloc(&memory, rounded(bytes)));
    kept.push_back(static_cast<std::byte*>(memory));
  }
  Memory memory(kept.back(), {bytes});
  kept.pop_back();
  return memory;
}

void GiveBack::operator()(std::byte* memory) const { t_free[rounded(bytes)].push_back(memory); }

void put(std::byte* memory, const std::byte* host, std::size_t bytes) {
  copy_stream().copy(memory, host, bytes, cudaMemcpyHostToDevice);
}
void get(std::byte* host, const std::byte* memory, std::size_t bytes) {
  copy_stream().copy(host, memory, bytes, cudaMemcpyDeviceToHost);
}

// All of one size, for whichever rank comes next.
std::byte* take_shareable(std::size_t bytes) {
  const std::lock_guard lock(g_shareable_mutex);
  if (g_shareable.empty()) return take_memory(bytes).release();
  std::byte* const memory = g_shareable.back();
  g_shareable.pop_back();
  return memory;
}
void give_back_shareable(std::byte* memory, std::size_t) {
  const std::lock_guard lock(g_shareable_mutex);
  g_shareable.push_back(memory);
}

bool serves_memory(const Cell& cell) {
  const char* const protocol = std::getenv("TR_PROTOCOL");
  if (cell.algorithm->windows && protocol != nullptr && std::string(protocol) != "Simple") {
    return false;
  }
  return cell.op != CellOp::kCompose &&
         device_has(cell.algorithm->collective, cell.algorithm->name, DeviceProtocol::kSimple);
}

}  // namespace treering::test
