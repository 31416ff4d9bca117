#include "transports/cuda_ipc/windows.hpp"

#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "core/cuda_device.hpp"
#include "core/cuda_driver.hpp"
#include "transports/exchange.hpp"

namespace treering::cuda_ipc {
namespace {

// What a rank tells the others about its memory; bytes.
struct WindowCard {
  pid_t pid = 0;
  int device = 0;
  std::byte* base = nullptr;  // of the allocation, in its process
  std::size_t offset = 0;     // of the window in it
  std::size_t bytes = 0;
  bool has_handle = false;
  cudaIpcMemHandle_t handle = {};
};

// What WindowMap::mapping keeps: the allocations of other processes that are open here.
class Opened {
 public:
  explicit Opened(int device) : device_(device) {}
  ~Opened() {
    const OnDevice on(device_);
    for (void* base : bases_) (void)cudaIpcCloseMemHandle(base);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  void add(void* base) { bases_.push_back(base); }

 private:
  int device_;
  std::vector<void*> bases_;
};

// The allocation that `ptr` lies in. Only the driver knows, and the library must start without it.
Status find_allocation(void* ptr, std::byte** base, std::size_t* bytes) {
  constexpr int kSince = 3020;  // the form with 64-bit addresses
  CUresult(CUDAAPI * address_range)(CUdeviceptr*, std::size_t*, CUdeviceptr) = nullptr;
  TR_RETURN_IF_ERROR(find_driver_function("cuMemGetAddressRange", kSince, address_range));
  CUdeviceptr at = 0;
  const CUresult answer = address_range(&at, bytes, reinterpret_cast<CUdeviceptr>(ptr));
  if (answer != CUDA_SUCCESS) {
    return Status(Code::kSystem,
                  "cuMemGetAddressRange: error " + std::to_string(static_cast<int>(answer)));
  }
  *base = reinterpret_cast<std::byte*>(at);
  return {};
}

// Is it memory that this rank may bring?
Result<WindowCard> offer(int device, void* ptr, std::size_t bytes) {
  if (bytes == 0) return invalid_argument("a window has at least one byte");
  cudaPointerAttributes attributes = {};
  const cudaError_t error = cudaPointerGetAttributes(&attributes, ptr);
  if (error != cudaSuccess) (void)cudaGetLastError();
  if (error != cudaSuccess || attributes.type != cudaMemoryTypeDevice) {
    return invalid_argument(
        attributes.type == cudaMemoryTypeManaged
            ? "managed memory moves between devices and cannot be a window; use cudaMalloc"
            : "the memory is not (or no longer) device memory");
  }
  if (attributes.device != device) {
    return invalid_argument("the memory is on device " + std::to_string(attributes.device) +
                            ", and this rank of the communicator is on device " +
                            std::to_string(device));
  }
  WindowCard card;
  std::size_t allocated = 0;
  TR_RETURN_IF_ERROR(find_allocation(ptr, &card.base, &allocated));
  card.pid = ::getpid();
  card.device = device;
  card.bytes = bytes;
  card.offset = static_cast<std::size_t>(static_cast<std::byte*>(ptr) - card.base);
  if (bytes > allocated - card.offset) {
    return invalid_argument("a window of " + std::to_string(bytes) + " bytes at offset " +
                            std::to_string(card.offset) + " exceeds its allocation of " +
                            std::to_string(allocated) + " bytes");
  }
  card.has_handle = cudaIpcGetMemHandle(&card.handle, card.base) == cudaSuccess;
  if (!card.has_handle) (void)cudaGetLastError();  // nothing, unless another process needs it
  return card;
}

// The windows of all ranks in this process's addresses.
Result<WindowMap> reach(int device, const std::vector<WindowCard>& cards, const WindowCard& mine) {
  auto opened = std::make_shared<Opened>(device);
  WindowMap map;
  for (std::size_t r = 0; r < cards.size(); ++r) {
    const WindowCard& card = cards[r];
    void* base = card.base;
    if (card.pid != mine.pid) {
      if (!mine.has_handle) {
        return unsupported(
            "the memory cannot be handed to other processes; use memory of cudaMalloc");
      }
      if (!card.has_handle) continue;  // its owner says so to all
      TR_RETURN_IF_ERROR(
          cuda_status(cudaIpcOpenMemHandle(&base, card.handle, cudaIpcMemLazyEnablePeerAccess),
                      "cudaIpcOpenMemHandle of the window of rank " + std::to_string(r)));
      opened->add(base);
    } else if (card.device != device) {
      // Slabs that are mapped by descriptors needed no such access.
      const cudaError_t error = cudaDeviceEnablePeerAccess(card.device, 0);
      if (error != cudaErrorPeerAccessAlreadyEnabled) {
        TR_RETURN_IF_ERROR(cuda_status(error, "cudaDeviceEnablePeerAccess"));
      }
      (void)cudaGetLastError();
    }
    map.base.push_back(static_cast<std::byte*>(base) + card.offset);
    map.bytes.push_back(card.bytes);
  }
  map.mapping = std::move(opened);
  return map;
}

}  // namespace

Result<WindowMap> map_windows(int device, void* ptr, std::size_t bytes, const Status& reached,
                              Rendezvous& rendezvous) {
  const OnDevice on(device);
  const Result<WindowCard> mine =
      reached.ok() ? offer(device, ptr, bytes) : Result<WindowCard>(reached);
  TR_ASSIGN_OR_RETURN(const std::vector<WindowCard> cards, exchange(rendezvous, mine));
  Result<WindowMap> map = reach(device, cards, mine.value());

  // All tell where they see the others' memory, or none has a window.
  std::string seen;
  if (map.ok()) {
    seen.assign(reinterpret_cast<const char*>(map.value().base.data()),
                map.value().base.size() * sizeof(std::byte*));
  }
  TR_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      exchange_bytes(rendezvous, map.status(), seen));
  const auto rank = static_cast<std::size_t>(rendezvous.rank());
  for (const std::string& theirs : all) {
    std::byte* at = nullptr;
    std::memcpy(&at, theirs.data() + rank * sizeof at, sizeof at);
    map.value().seen_at.push_back(at);
  }
  return map;
}

}  // namespace treering::cuda_ipc
