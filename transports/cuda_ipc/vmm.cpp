#include "transports/cuda_ipc/vmm.hpp"

#include <cstdint>
#include <utility>

#include "core/cuda_driver.hpp"

namespace treering::cuda_ipc {
namespace {

constexpr int kSince = 12000;  // their forms

struct Driver {
  decltype(&::cuGetErrorName) error_name = nullptr;
  decltype(&::cuDeviceGet) device = nullptr;
  decltype(&::cuDeviceGetAttribute) attribute = nullptr;
  decltype(&::cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&::cuMemCreate) create = nullptr;
  decltype(&::cuMemRelease) release = nullptr;
  decltype(&::cuMemAddressReserve) reserve = nullptr;
  decltype(&::cuMemAddressFree) free = nullptr;
  decltype(&::cuMemMap) map = nullptr;
  decltype(&::cuMemUnmap) unmap = nullptr;
  decltype(&::cuMemSetAccess) set_access = nullptr;
  decltype(&::cuMemExportToShareableHandle) give = nullptr;
  decltype(&::cuMemImportFromShareableHandle) take = nullptr;
};

Result<Driver> find_driver() {
  Driver d;
  TR_RETURN_IF_ERROR(find_driver_function("cuGetErrorName", kSince, d.error_name));
  TR_RETURN_IF_ERROR(find_driver_function("cuDeviceGet", kSince, d.device));
  TR_RETURN_IF_ERROR(find_driver_function("cuDeviceGetAttribute", kSince, d.attribute));
  TR_RETURN_IF_ERROR(find_driver_function("cuMemGetAllocationGranularity", kSince, d.granularity));
  TR_RETURN_IF_ERROR(find_driver_function("cuMemCreate", kSince, d.create));
  TR_RETURN_IF_ERROR(find_driver_function("cuMemRelease", kSince, d.release));
  TR_RETURN_IF_ERROR(find_driver_function("cuMemAddressReserve", kSince, d.reserve));
  TR_RETURN_IF_ERROR(find_driver_function("cuMemAddressFree", kSince, d.free));
  TR_RETURN_IF_ERROR(find_driver_function("cuMemMap", kSince, d.map));
  TR_RETURN_IF_ERROR(find_driver_function("cuMemUnmap", kSince, d.unmap));
  TR_RETURN_IF_ERROR(find_driver_function("cuMemSetAccess", kSince, d.set_access));
  TR_RETURN_IF_ERROR(find_driver_function("cuMemExportToShareableHandle", kSince, d.give));
  TR_RETURN_IF_ERROR(find_driver_function("cuMemImportFromShareableHandle", kSince, d.take));
  return d;
}

const Result<Driver>& driver() {
  static const Result<Driver> kDriver = find_driver();
  return kDriver;
}

// Of a driver that is there.
const Driver& the() { return driver().value(); }

Status status_of(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  (void)the().error_name(result, &name);
  return Status(Code::kSystem, what + ": " + (name != nullptr ? name : "unknown error") +
                                   " (driver error " + std::to_string(static_cast<int>(result)) +
                                   ")");
}

CUmemAllocationProp properties_of(int device) {
  CUmemAllocationProp p = {};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = device;
  return p;
}

}  // namespace

std::string VmmMemory::why_not(int device) {
  if (!driver().ok()) return driver().status().message();
  CUdevice handle = 0;
  if (const Status s = status_of(the().device(&handle, device), "cuDeviceGet"); !s.ok())
    return s.message();
  for (const auto& [attribute, what] :
       {std::pair(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                  "virtual memory functions"),
        std::pair(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                  "memory handles that are file descriptors")}) {
    int has = 0;
    const Status s = status_of(the().attribute(&has, attribute, handle), "cuDeviceGetAttribute");
    if (!s.ok()) return s.message();
    if (has == 0) return std::string("it has no ") + what;
  }
  return {};
}

Result<VmmMemory> VmmMemory::make(int device, std::size_t bytes) {
  const CUmemAllocationProp properties = properties_of(device);
  std::size_t unit = 0;
  TR_RETURN_IF_ERROR(
      status_of(the().granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                "cuMemGetAllocationGranularity"));
  const std::size_t whole = (bytes + unit - 1) / unit * unit;
  VmmMemory memory;
  TR_RETURN_IF_ERROR(status_of(the().create(&memory.handle_, whole, &properties, 0),
                               "cuMemCreate of " + std::to_string(whole) + " bytes"));
  TR_RETURN_IF_ERROR(memory.map(memory.handle_, whole, device));
  return memory;
}

Result<VmmMemory> VmmMemory::of_file(int file, std::size_t bytes, int device) {
  if (!driver().ok()) return driver().status();
  CUmemGenericAllocationHandle handle = 0;
  TR_RETURN_IF_ERROR(
      status_of(the().take(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                "cuMemImportFromShareableHandle"));
  VmmMemory memory;
  const Status mapped = memory.map(handle, bytes, device);
  (void)the().release(handle);  // the mapping keeps the memory
  if (!mapped.ok()) return mapped;
  return memory;
}

Result<VmmMemory> VmmMemory::of_handle(CUmemGenericAllocationHandle handle, std::size_t bytes,
                                       int device) {
  VmmMemory memory;
  TR_RETURN_IF_ERROR(memory.map(handle, bytes, device));
  return memory;
}

Status VmmMemory::map(CUmemGenericAllocationHandle handle, std::size_t bytes, int device) {
  TR_RETURN_IF_ERROR(status_of(the().reserve(&base_, bytes, 0, 0, 0), "cuMemAddressReserve"));
  bytes_ = bytes;
  TR_RETURN_IF_ERROR(status_of(the().map(base_, bytes, 0, handle, 0), "cuMemMap"));
  is_mapped_ = true;
  CUmemAccessDesc access = {};
  access.location = properties_of(device).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return status_of(the().set_access(base_, bytes, &access, 1),
                   "cuMemSetAccess for device " + std::to_string(device));
}

Result<UniqueFd> VmmMemory::file() const {
  int file = -1;
  TR_RETURN_IF_ERROR(
      status_of(the().give(&file, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                "cuMemExportToShareableHandle"));
  return UniqueFd(file);
}

void VmmMemory::leak() {
  base_ = 0;
  is_mapped_ = false;
  handle_ = 0;
}

VmmMemory::VmmMemory(VmmMemory&& other) noexcept
    : base_(std::exchange(other.base_, 0)),
      bytes_(std::exchange(other.bytes_, 0)),
      is_mapped_(std::exchange(other.is_mapped_, false)),
      handle_(std::exchange(other.handle_, 0)) {}

VmmMemory& VmmMemory::operator=(VmmMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(is_mapped_, other.is_mapped_);
  std::swap(handle_, other.handle_);
  return *this;
}

VmmMemory::~VmmMemory() {
  if (is_mapped_) (void)the().unmap(base_, bytes_);
  if (base_ != 0) (void)the().free(base_, bytes_);
  if (handle_ != 0) (void)the().release(handle_);
}

}  // namespace treering::cuda_ipc
