#include "memory.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#include "fiber.hpp"
#include "report.hpp"

namespace cudasim {

std::uintptr_t arena_base = ~std::uintptr_t{0} / 2;
thread_local constinit std::uint32_t reachable_devices = ~0u;

namespace {

constexpr std::size_t kGarbageBytes = std::size_t{1} << 20;

// One reservation for all windows; nothing in it can be touched until something is mapped there.
void reserve_arena() {
  static const bool done = [] {
    void* range = mmap(nullptr, kMaxDevices * kWindowBytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
      std::perror("cudasim: cannot reserve addresses for device memory");
      std::abort();
    }
    arena_base = reinterpret_cast<std::uintptr_t>(range);
    explain_segv();
    return true;
  }();
  (void)done;
}

// Ranges in use inside the windows: start -> length. Addresses are reused as late as possible, so
// that a freed pointer stays invalid.
std::map<std::uintptr_t, std::size_t>& ranges() {
  static auto& one = *new std::map<std::uintptr_t, std::size_t>;
  return one;
}

std::uintptr_t find_room(int device, std::size_t bytes, std::size_t align) {
  static std::array<std::uintptr_t, kMaxDevices> next{};
  const std::uintptr_t window = arena_base + static_cast<std::size_t>(device) * kWindowBytes;
  std::uintptr_t& cursor = next[static_cast<std::size_t>(device)];
  if (cursor == 0) cursor = window;
  for (int pass = 0; pass < 2; ++pass) {
    while (true) {
      cursor = round_up(cursor, align);
      if (cursor + bytes > window + kWindowBytes) break;
      auto after = ranges().upper_bound(cursor);
      if (after != ranges().begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second > cursor) {
          cursor = before->first + before->second;
          continue;
        }
      }
      if (after == ranges().end() || after->first >= cursor + bytes) {
        const std::uintptr_t found = cursor;
        ranges()[found] = bytes;
        cursor += bytes;
        return found;
      }
      cursor = after->first + after->second;
    }
    cursor = window;
  }
  return 0;
}

}  // namespace

std::map<std::uintptr_t, Allocation>& allocations() {
  static auto& one = *new std::map<std::uintptr_t, Allocation>;
  return one;
}

Allocation* find_allocation(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  auto after = allocations().upper_bound(address);
  if (after == allocations().begin()) return nullptr;
  Allocation& before = std::prev(after)->second;
  return address - before.place.base < before.place.bytes ? &before : nullptr;
}

Place place_of(Lock&, const void* p) {
  const Allocation* allocation = find_allocation(p);
  return allocation != nullptr ? allocation->place : Place{};
}

std::size_t live_allocations(Lock&) { return allocations().size(); }

std::uintptr_t reserve_in_window(int device, std::size_t bytes, std::size_t align) {
  reserve_arena();
  return find_room(device, bytes, align);
}

// Addresses that are used again and again must not keep ThreadSanitizer's memory of the last owner;
// its interceptors of mmap see to that.
void unmap_from_window(std::uintptr_t address, std::size_t bytes) {
  mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  ranges().erase(address);
}

std::uintptr_t map_in_window(int device, int file, std::size_t bytes, std::size_t align) {
  reserve_arena();
  align = std::max(align, kPage);
  const std::uintptr_t start = find_room(device, bytes + 2 * align, align);
  if (start == 0) return 0;
  void* data = mmap(reinterpret_cast<void*>(start + align), bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED, file, 0);
  if (data == MAP_FAILED) {
    unmap_from_window(start, bytes + 2 * align);
    return 0;
  }
  return start;
}

int shared_file(std::size_t bytes, int device) {
  const int file = memfd_create(("cudasim-" + std::to_string(device)).c_str(), MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    close(file);
    return -1;
  }
  return file;
}

namespace {

cudaError_t allocate(Lock&, void** out, std::size_t bytes, int device_number) {
  *out = nullptr;
  if (bytes == 0) return cudaSuccess;
  Device& device = runtime().devices[static_cast<std::size_t>(device_number)];
  if (bytes > (settings().memory_mib << 20) - device.used_bytes) return cudaErrorMemoryAllocation;
  // The end, not the beginning, touches a guard page: most mistakes go past the end.
  const std::size_t data_bytes = round_up(bytes, 256);
  const std::size_t file_bytes = round_up(data_bytes, kPage);
  Allocation allocation;
  allocation.file = shared_file(file_bytes, device_number);
  if (allocation.file < 0) return cudaErrorMemoryAllocation;
  allocation.mapping = map_in_window(device_number, allocation.file, file_bytes, kPage);
  if (allocation.mapping == 0) {
    close(allocation.file);
    return cudaErrorMemoryAllocation;
  }
  allocation.mapping_bytes = file_bytes + 2 * kPage;
  allocation.file_offset = file_bytes - data_bytes;
  allocation.place = {Place::Kind::kDevice, device_number,
                      allocation.mapping + kPage + allocation.file_offset, bytes, device_number};
  *out = reinterpret_cast<void*>(allocation.place.base);
  std::memset(*out, 0xCD, std::min(bytes, kGarbageBytes));
  device.used_bytes += bytes;
  allocations()[allocation.place.base] = allocation;
  return cudaSuccess;
}

void release(Lock&, const Allocation& allocation) {
  if (allocation.place.kind == Place::Kind::kDevice) {
    runtime().devices[static_cast<std::size_t>(allocation.place.device)].used_bytes -=
        allocation.place.bytes;
  }
  unmap_from_window(allocation.mapping, allocation.mapping_bytes);
  if (allocation.file >= 0) close(allocation.file);
  allocations().erase(allocation.place.base);
}

cudaError_t allocate_host(const char* name, void** out, std::size_t bytes) {
  return locked_api(name, [&](Lock& lock) {
    if (const cudaError_t error = unsafe_call(lock); error != cudaSuccess) return error;
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    Allocation allocation;
    const std::size_t data_bytes = round_up(bytes, kPage);
    allocation.mapping_bytes = data_bytes + 2 * kPage;
    void* mapping = mmap(nullptr, allocation.mapping_bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return cudaErrorMemoryAllocation;
    allocation.mapping = reinterpret_cast<std::uintptr_t>(mapping);
    allocation.place = {Place::Kind::kHost, current_device(), allocation.mapping + kPage, bytes};
    *out = reinterpret_cast<void*>(allocation.place.base);
    if (mprotect(*out, data_bytes, PROT_READ | PROT_WRITE) != 0) {
      munmap(mapping, allocation.mapping_bytes);
      return cudaErrorMemoryAllocation;
    }
    std::memset(*out, 0xCD, std::min(bytes, kGarbageBytes));
    allocations()[allocation.place.base] = allocation;
    return cudaSuccess;
  });
}

// The allocation that begins at p; null if none does, or if it is freed already.
Allocation* owned(void* p, Place::Kind kind) {
  Allocation* allocation = find_allocation(p);
  if (allocation == nullptr || allocation->place.kind != kind || allocation->is_freed)
    return nullptr;
  return allocation->place.base == reinterpret_cast<std::uintptr_t>(p) ? allocation : nullptr;
}

void wait_for_all_devices(Lock& lock, const char* who) {
  for (std::size_t i = 0; i < runtime().devices.size(); ++i) {
    wait_for_device(lock, static_cast<int>(i), who);
  }
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  return locked_api("cudaMalloc", [&](Lock& lock) {
    if (const cudaError_t error = unsafe_call(lock); error != cudaSuccess) return error;
    if (settings().strict) wait_for_device(lock, current_device(), "cudaMalloc");
    return allocate(lock, out, bytes, current_device());
  });
}

// As on a GPU it waits for all work of the device: with a kernel that waits for the caller, for
// ever.
cudaError_t cudaFree(void* p) {
  return locked_api("cudaFree", [&](Lock& lock) {
    if (p == nullptr) return cudaSuccess;
    if (const cudaError_t error = unsafe_call(lock); error != cudaSuccess) return error;
    Allocation* allocation = owned(p, Place::Kind::kDevice);
    if (allocation == nullptr) return cudaErrorInvalidValue;
    allocation->is_freed = true;
    wait_for_device(lock, allocation->place.device, "cudaFree");
    release(lock, *find_allocation(p));
    return cudaSuccess;
  });
}

cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t handle) {
  return with_stream("cudaMallocAsync", handle, [&](Lock& lock, Stream& stream) {
    if (stream.capture != nullptr) {
      stream.capture->broken = true;  // memory nodes: not emulated
      return cudaErrorNotSupported;
    }
    return allocate(lock, out, bytes, stream.device);
  });
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t handle) {
  return with_stream("cudaFreeAsync", handle, [&](Lock& lock, Stream& stream) {
    if (stream.capture != nullptr) {
      stream.capture->broken = true;
      return cudaErrorNotSupported;
    }
    if (p == nullptr) return cudaSuccess;
    Allocation* allocation = owned(p, Place::Kind::kDevice);
    if (allocation == nullptr) return cudaErrorInvalidValue;
    allocation->is_freed = true;
    return submit(lock, stream, cudaGraphNodeTypeMemFree, [p] {
      Lock inner(runtime().mutex);
      release(inner, *find_allocation(p));
    });
  });
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
  return allocate_host("cudaHostAlloc", out, bytes);
}
cudaError_t cudaMallocHost(void** out, size_t bytes) {
  return allocate_host("cudaMallocHost", out, bytes);
}

cudaError_t cudaFreeHost(void* p) {
  return locked_api("cudaFreeHost", [&](Lock& lock) {
    if (p == nullptr) return cudaSuccess;
    if (const cudaError_t error = unsafe_call(lock); error != cudaSuccess) return error;
    Allocation* allocation = owned(p, Place::Kind::kHost);
    if (allocation == nullptr) return cudaErrorInvalidValue;
    allocation->is_freed = true;
    wait_for_all_devices(lock, "cudaFreeHost");
    const Allocation copy = *find_allocation(p);
    munmap(reinterpret_cast<void*>(copy.mapping), copy.mapping_bytes);
    allocations().erase(copy.place.base);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned) {
  return locked_api("cudaHostRegister", [&](Lock&) {
    if (p == nullptr || bytes == 0) return cudaErrorInvalidValue;
    const auto base = reinterpret_cast<std::uintptr_t>(p);
    const auto next = allocations().lower_bound(base);
    if (find_allocation(p) != nullptr ||
        (next != allocations().end() && next->first < base + bytes)) {
      return cudaErrorHostMemoryAlreadyRegistered;
    }
    Allocation allocation;
    allocation.place = {Place::Kind::kRegistered, current_device(), base, bytes};
    allocations()[base] = allocation;
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* p) {
  return locked_api("cudaHostUnregister", [&](Lock& lock) {
    Allocation* allocation = owned(p, Place::Kind::kRegistered);
    if (allocation == nullptr) return cudaErrorHostMemoryNotRegistered;
    allocation->is_freed = true;
    wait_for_all_devices(lock, "cudaHostUnregister");
    allocations().erase(reinterpret_cast<std::uintptr_t>(p));
    return cudaSuccess;
  });
}

// One address for all: nothing is translated.
cudaError_t cudaHostGetDevicePointer(void** out, void* p, unsigned flags) {
  return locked_api("cudaHostGetDevicePointer", [&](Lock& lock) {
    const Place::Kind kind = place_of(lock, p).kind;
    if (flags != 0 || (kind != Place::Kind::kHost && kind != Place::Kind::kRegistered)) {
      return cudaErrorInvalidValue;
    }
    *out = p;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  return locked_api("cudaMemGetInfo", [&](Lock&) {
    *total = settings().memory_mib << 20;
    *available = *total - runtime().devices[static_cast<std::size_t>(current_device())].used_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  return locked_api("cudaPointerGetAttributes", [&](Lock& lock) {
    const Place place = place_of(lock, p);
    *out = {};
    out->device = place.device;
    switch (place.kind) {
      case Place::Kind::kNone:
        out->type = cudaMemoryTypeUnregistered;
        out->device = cudaInvalidDeviceId;
        return cudaSuccess;
      case Place::Kind::kHost:
      case Place::Kind::kRegistered:
        out->type = cudaMemoryTypeHost;
        out->hostPointer = const_cast<void*>(p);
        break;
      case Place::Kind::kDevice:
      case Place::Kind::kIpc:
      case Place::Kind::kVmm:
        out->type = cudaMemoryTypeDevice;
        break;
    }
    out->devicePointer = const_cast<void*>(p);
    return cudaSuccess;
  });
}

}  // extern "C"
