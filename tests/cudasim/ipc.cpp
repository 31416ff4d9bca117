// IPC handles: which process, which of its files. Another process opens the file through /proc.
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.hpp"

using namespace cudasim;

namespace {

constexpr std::uint64_t kMagic = 0x6d69736164756303;

struct Handle {
  std::uint64_t magic;
  std::uint64_t inode;  // a number that the process used for another file meanwhile is noticed
  std::int32_t process;
  std::int32_t file;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::int32_t device;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

std::uint64_t inode_of(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

}  // namespace

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* out, void* p) {
  return locked_api("cudaIpcGetMemHandle", [&](Lock&) {
    const Allocation* allocation = find_allocation(p);
    if (allocation == nullptr || allocation->place.kind != Place::Kind::kDevice) {
      return cudaErrorInvalidValue;
    }
    const Handle handle = {kMagic,
                           inode_of(allocation->file),
                           getpid(),
                           allocation->file,
                           allocation->file_offset,
                           allocation->place.bytes,
                           allocation->place.device};
    *out = {};
    std::memcpy(out, &handle, sizeof handle);
    return cudaSuccess;
  });
}

// The same handle opened again gives the same address.
cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t packed, unsigned flags) {
  return locked_api("cudaIpcOpenMemHandle", [&](Lock&) {
    Handle handle;
    std::memcpy(&handle, &packed, sizeof handle);
    if (handle.magic != kMagic || flags != cudaIpcMemLazyEnablePeerAccess)
      return cudaErrorInvalidValue;
    if (handle.process == getpid()) return cudaErrorDeviceUninitialized;
    const int device = current_device();
    if (between(device, handle.device) == Between::kNoHandles || !has_access(device, handle.device))
      return cudaErrorMapBufferObjectFailed;
    for (auto& [base, known] : allocations()) {
      if (known.place.kind == Place::Kind::kIpc && known.inode == handle.inode &&
          known.place.device == device) {
        ++known.references;
        *out = reinterpret_cast<void*>(base);
        return cudaSuccess;
      }
    }
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return cudaErrorMapBufferObjectFailed;
    const std::size_t file_bytes = round_up(handle.offset + handle.bytes, kPage);
    Allocation mapped;
    mapped.inode = inode_of(file);
    if (mapped.inode == handle.inode) {
      mapped.mapping = map_in_window(device, file, file_bytes, kPage);
    }
    close(file);
    if (mapped.mapping == 0) return cudaErrorMapBufferObjectFailed;
    mapped.mapping_bytes = file_bytes + 2 * kPage;
    mapped.place = {Place::Kind::kIpc, device, mapped.mapping + kPage + handle.offset, handle.bytes,
                    handle.device};
    allocations()[mapped.place.base] = mapped;
    *out = reinterpret_cast<void*>(mapped.place.base);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcCloseMemHandle(void* p) {
  return locked_api("cudaIpcCloseMemHandle", [&](Lock&) {
    Allocation* allocation = find_allocation(p);
    if (allocation == nullptr || allocation->place.kind != Place::Kind::kIpc ||
        allocation->place.base != reinterpret_cast<std::uintptr_t>(p)) {
      return cudaErrorInvalidValue;
    }
    if (--allocation->references > 0) return cudaSuccess;
    unmap_from_window(allocation->mapping, allocation->mapping_bytes);
    allocations().erase(allocation->place.base);
    return cudaSuccess;
  });
}

}  // extern "C"
