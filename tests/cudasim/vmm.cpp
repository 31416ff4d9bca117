// The driver's virtual memory functions: physical memory is a file, an address range is reserved in
// the arena, mapping is mmap, a shareable handle is the file's descriptor.
#include <array>
#include <cstdio>
#include <cuda.h>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.hpp"
#include "memory.hpp"

using namespace cudasim;

namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

// Physical memory.
struct Physical {
  int file = -1;
  std::size_t bytes = 0;
  int device = 0;
  unsigned handle_types = 0;
  int references = 0;  // handles and mappings
};

struct Reserved {
  std::size_t bytes = 0;
  std::uintptr_t start = 0;  // with what alignment cost
};

struct Vmm {
  std::set<Physical*> handles;
  std::map<std::uintptr_t, Reserved> reserved;
  std::map<std::uintptr_t, Physical*> mapped;
};
Vmm& vmm() {
  static auto& one = *new Vmm;
  return one;
}

void drop(Physical* physical) {
  if (--physical->references > 0) return;
  close(physical->file);
  vmm().handles.erase(physical);
  delete physical;
}

bool is_whole(std::size_t n) { return n != 0 && n % kGranularity == 0; }

bool is_ours(const CUmemAllocationProp* prop) {
  return prop != nullptr && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop->location.id >= 0 &&
         prop->location.id < settings().devices;
}

Physical* find_physical(CUmemGenericAllocationHandle handle) {
  auto* physical = reinterpret_cast<Physical*>(handle);
  return vmm().handles.count(physical) != 0 ? physical : nullptr;
}

// The device whose memory a file is: its name says it. -1: no file of ours.
int device_of(int file) {
  char target[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  int device = -1;
  if (readlink(link.c_str(), target, sizeof target - 1) < 0) return -1;
  return std::sscanf(target, "/memfd:cudasim-%d", &device) == 1 ? device : -1;
}

CUmemGenericAllocationHandle new_handle(int file, std::size_t bytes, int device, unsigned types) {
  auto* physical = new Physical{file, bytes, device, types, 1};
  vmm().handles.insert(physical);
  return reinterpret_cast<CUmemGenericAllocationHandle>(physical);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuInit(unsigned) { return driver_error(enter("cuInit")); }
CUresult CUDAAPI cuDriverGetVersion(int* version) {
  return driver_error(cudaDriverGetVersion(version));
}
CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  return driver("cuDeviceGet", [&](Lock&) {
    if (ordinal < 0 || ordinal >= settings().devices) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  return driver("cuCtxGetDevice", [&](Lock&) {
    *device = current_device();
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = settings().vmm ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
      *value = settings().mem_ops ? 1 : 0;
      return CUDA_SUCCESS;
    default:
      return driver_error(
          cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(which), device));
  }
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* prop,
                                               CUmemAllocationGranularity_flags) {
  return driver("cuMemGetAllocationGranularity", [&](Lock&) {
    if (!is_ours(prop)) return CUDA_ERROR_INVALID_VALUE;
    *out = kGranularity;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                             const CUmemAllocationProp* prop, unsigned long long flags) {
  return driver("cuMemCreate", [&](Lock&) {
    if (flags != 0 || !is_whole(bytes) || !is_ours(prop)) return CUDA_ERROR_INVALID_VALUE;
    if (!settings().vmm) return CUDA_ERROR_NOT_SUPPORTED;
    if ((prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    const int file = shared_file(bytes, prop->location.id);
    if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = new_handle(file, bytes, prop->location.id, prop->requestedHandleTypes);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  return driver("cuMemRelease", [&](Lock&) {
    Physical* physical = find_physical(handle);
    if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
    drop(physical);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t align, CUdeviceptr,
                                     unsigned long long flags) {
  return driver("cuMemAddressReserve", [&](Lock&) {
    if (flags != 0 || !is_whole(bytes) || (align & (align - 1)) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const std::uintptr_t start =
        reserve_in_window(current_device(), bytes + kGranularity, std::max(align, kGranularity));
    if (start == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    vmm().reserved[start] = {bytes, start};
    *out = start;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return driver("cuMemAddressFree", [&](Lock&) {
    const auto found = vmm().reserved.find(address);
    if (found == vmm().reserved.end() || found->second.bytes != bytes)
      return CUDA_ERROR_INVALID_VALUE;
    const auto mapped = vmm().mapped.lower_bound(address);
    if (mapped != vmm().mapped.end() && mapped->first < address + bytes)
      return CUDA_ERROR_INVALID_VALUE;
    unmap_from_window(address, bytes + kGranularity);
    vmm().reserved.erase(found);
    return CUDA_SUCCESS;
  });
}

// Whoever unmaps sees to it that nothing is at work there: it does not wait, as cudaFree does.
// Mapped memory cannot be touched before cuMemSetAccess.
CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return driver("cuMemMap", [&](Lock&) {
    Physical* physical = find_physical(handle);
    auto range = vmm().reserved.upper_bound(address);
    if (physical == nullptr || flags != 0 || offset != 0 || bytes != physical->bytes ||
        range == vmm().reserved.begin()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    --range;
    if (address + bytes > range->first + range->second.bytes ||
        find_allocation(reinterpret_cast<void*>(address)) != nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    void* data = mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                      physical->file, 0);
    if (data == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
    ++physical->references;
    vmm().mapped[address] = physical;
    Allocation allocation;
    allocation.place = {Place::Kind::kVmm, physical->device, address, bytes, physical->device};
    allocations()[address] = allocation;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return driver("cuMemUnmap", [&](Lock&) {
    const auto found = vmm().mapped.find(address);
    if (found == vmm().mapped.end() || found->second->bytes != bytes)
      return CUDA_ERROR_INVALID_VALUE;
    mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    allocations().erase(address);
    Physical* physical = found->second;
    vmm().mapped.erase(found);
    drop(physical);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                                size_t count) {
  return driver("cuMemSetAccess", [&](Lock&) {
    const auto found = vmm().mapped.find(address);
    if (found == vmm().mapped.end() || found->second->bytes != bytes || count == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    int protection = PROT_NONE;
    for (size_t i = 0; i < count; ++i) {
      const int device = access[i].location.id;
      if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 ||
          device >= settings().devices || !has_access(device, found->second->device)) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
      if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) protection |= PROT_READ;
      if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        protection |= PROT_READ | PROT_WRITE;
    }
    return mprotect(reinterpret_cast<void*>(address), bytes, protection) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  });
}

// The descriptor is the caller's: to be sent with SCM_RIGHTS and closed.
CUresult CUDAAPI cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type,
                                              unsigned long long flags) {
  return driver("cuMemExportToShareableHandle", [&](Lock&) {
    const Physical* physical = find_physical(handle);
    if (physical == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        (physical->handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int file = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
    if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *static_cast<int*>(out) = file;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                                CUmemAllocationHandleType type) {
  return driver("cuMemImportFromShareableHandle", [&](Lock&) {
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    const int given = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
    struct stat status {};
    if (fstat(given, &status) != 0 || !is_whole(static_cast<std::size_t>(status.st_size))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int device = device_of(given);
    if (device < 0) return CUDA_ERROR_INVALID_VALUE;
    if (between(current_device(), device) == Between::kNoHandles) return CUDA_ERROR_NOT_PERMITTED;
    const int file = fcntl(given, F_DUPFD_CLOEXEC, 0);
    if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = new_handle(file, static_cast<std::size_t>(status.st_size), device,
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  return driver("cuMemRetainAllocationHandle", [&](Lock&) {
    const Allocation* allocation = find_allocation(address);
    if (allocation == nullptr || allocation->place.kind != Place::Kind::kVmm)
      return CUDA_ERROR_INVALID_VALUE;
    Physical* physical = vmm().mapped[allocation->place.base];
    ++physical->references;
    *out = reinterpret_cast<CUmemGenericAllocationHandle>(physical);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return driver("cuMemGetAddressRange", [&](Lock& lock) {
    const Place place = place_of(lock, reinterpret_cast<void*>(address));
    if (place.kind == Place::Kind::kNone) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = place.base;
    if (bytes != nullptr) *bytes = place.bytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** out) {
  *out = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR";
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetErrorString(CUresult error, const char** out) {
  *out = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

// What a library asks for instead of linking libcuda.
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** out, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  struct Entry {
    std::string_view name;
    void* function;
  };
#define ENTRY(name) \
  { #name, reinterpret_cast < void*>(&name) }
  static const Entry entries[] = {
      ENTRY(cuInit),
      ENTRY(cuDriverGetVersion),
      ENTRY(cuDeviceGet),
      ENTRY(cuDeviceGetAttribute),
      ENTRY(cuCtxGetDevice),
      ENTRY(cuMemGetAllocationGranularity),
      ENTRY(cuMemCreate),
      ENTRY(cuMemRelease),
      ENTRY(cuMemAddressReserve),
      ENTRY(cuMemAddressFree),
      ENTRY(cuMemMap),
      ENTRY(cuMemUnmap),
      ENTRY(cuMemSetAccess),
      ENTRY(cuMemExportToShareableHandle),
      ENTRY(cuMemImportFromShareableHandle),
      ENTRY(cuMemRetainAllocationHandle),
      ENTRY(cuStreamWriteValue32),
      ENTRY(cuStreamWaitValue32),
      ENTRY(cuGetErrorName),
      ENTRY(cuGetErrorString),
      // Macros of cuda.h, which name the newest version.
      {"cuMemGetAddressRange", reinterpret_cast<void*>(&cuMemGetAddressRange)},
      {"cuStreamWriteValue64", reinterpret_cast<void*>(&cuStreamWriteValue64)},
      {"cuStreamWaitValue64", reinterpret_cast<void*>(&cuStreamWaitValue64)},
      {"cuStreamBatchMemOp", reinterpret_cast<void*>(&cuStreamBatchMemOp)},
  };
  return api("cudaGetDriverEntryPointByVersion", [&] {
    *out = nullptr;
    for (const Entry& entry : entries) {
      if (entry.name == symbol) *out = entry.function;
    }
    if (status != nullptr) {
      *status = *out != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
  });
}

}  // extern "C"
