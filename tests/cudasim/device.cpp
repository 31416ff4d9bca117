// Devices: what they are, who reaches whom, what a kernel may use.
#include <algorithm>
#include <cstdio>

#include "grid.hpp"
#include "runtime.hpp"

using namespace cudasim;

namespace {

constexpr int kFirstBus = 0x10;
constexpr int kRegistersPerThread = 64;

bool is_device_number(int device) { return device >= 0 && device < settings().devices; }

int bus_of(int device) { return kFirstBus + device; }

int attribute(cudaDeviceAttr which, int device) {
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return 1024;
    case cudaDevAttrMaxBlockDimZ:
      return 64;
    case cudaDevAttrMaxGridDimX:
      return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return static_cast<int>(kSharedPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(kSharedPerBlockOptin);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(kSharedPerSm);
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return static_cast<int>(kSharedReserved);
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMultiProcessorCount:
      return settings().sms;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 2048;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return static_cast<int>(kBlocksPerSm);
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return 65536;
    case cudaDevAttrComputeCapabilityMajor:
      return 9;
    case cudaDevAttrComputeCapabilityMinor:
      return 0;
    case cudaDevAttrPciBusId:
      return bus_of(device);
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrCooperativeLaunch:
      return 1;
    default:
      return 0;
  }
}

template <class F>
cudaError_t with_device(const char* name, int device, F f) {
  return locked_api(name,
                    [&](Lock&) { return is_device_number(device) ? f() : cudaErrorInvalidDevice; });
}

std::uint32_t& peers_of_current() {
  return runtime().devices[static_cast<std::size_t>(current_device())].peers;
}

}  // namespace

extern "C" {

// With no device the count stays as it was, as with NVIDIA's library.
cudaError_t cudaGetDeviceCount(int* count) {
  return api("cudaGetDeviceCount", [&] {
    *count = settings().devices;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = settings().devices < 0 ? 0 : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return with_device("cudaDeviceGetAttribute", device, [&] {
    *value = attribute(which, device);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  return with_device("cudaGetDeviceProperties", device, [&] {
    const auto get = [&](cudaDeviceAttr which) { return attribute(which, device); };
    *out = {};
    std::snprintf(out->name, sizeof out->name, "Emulated GPU (cudasim)");
    std::memcpy(out->uuid.bytes, "cudasim", 7);
    out->uuid.bytes[7] = static_cast<char>(device);
    out->totalGlobalMem = settings().memory_mib << 20;
    out->sharedMemPerBlock = kSharedPerBlock;
    out->sharedMemPerBlockOptin = kSharedPerBlockOptin;
    out->sharedMemPerMultiprocessor = kSharedPerSm;
    out->reservedSharedMemPerBlock = kSharedReserved;
    out->regsPerBlock = out->regsPerMultiprocessor = get(cudaDevAttrMaxRegistersPerBlock);
    out->warpSize = 32;
    out->maxThreadsPerBlock = 1024;
    out->maxThreadsDim[0] = out->maxThreadsDim[1] = 1024;
    out->maxThreadsDim[2] = 64;
    out->maxGridSize[0] = get(cudaDevAttrMaxGridDimX);
    out->maxGridSize[1] = out->maxGridSize[2] = 65535;
    out->major = 9;
    out->minor = 0;
    out->multiProcessorCount = settings().sms;
    out->maxThreadsPerMultiProcessor = 2048;
    out->maxBlocksPerMultiProcessor = static_cast<int>(kBlocksPerSm);
    out->canMapHostMemory = out->unifiedAddressing = out->concurrentKernels = 1;
    out->asyncEngineCount = 2;
    out->pciBusID = bus_of(device);
    out->streamPrioritiesSupported = out->memoryPoolsSupported = 1;
    out->hostNativeAtomicSupported = out->hostRegisterSupported = 1;
    out->canUseHostPointerForRegisteredMem = out->cooperativeLaunch = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* out, int bytes, int device) {
  return with_device("cudaDeviceGetPCIBusId", device, [&] {
    if (bytes < 13) return cudaErrorInvalidValue;
    std::snprintf(out, static_cast<std::size_t>(bytes), "0000:%02X:00.0", bus_of(device));
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  return locked_api("cudaDeviceGetByPCIBusId", [&](Lock&) {
    unsigned domain = 0, bus = 0;
    if (std::sscanf(id, "%x:%x", &domain, &bus) != 2) return cudaErrorInvalidValue;
    *device = static_cast<int>(bus) - kFirstBus;
    return is_device_number(*device) ? cudaSuccess : cudaErrorInvalidDevice;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return with_device("cudaDeviceCanAccessPeer", device, [&] {
    if (!is_device_number(peer)) return cudaErrorInvalidDevice;
    *can = device != peer && has_access(device, peer) ? 1 : 0;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr which, int from, int to) {
  return with_device("cudaDeviceGetP2PAttribute", from, [&] {
    if (!is_device_number(to) || from == to) return cudaErrorInvalidDevice;
    switch (which) {
      case cudaDevP2PAttrAccessSupported:
        *value = has_access(from, to) ? 1 : 0;
        return cudaSuccess;
      case cudaDevP2PAttrNativeAtomicSupported:
        *value = has_access(from, to) && settings().nvlink ? 1 : 0;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return with_device("cudaDeviceEnablePeerAccess", peer, [&] {
    if (flags != 0) return cudaErrorInvalidValue;
    if (peer == current_device() || !has_access(current_device(), peer))
      return cudaErrorInvalidDevice;
    std::uint32_t& peers = peers_of_current();
    if ((peers >> peer & 1) != 0) return cudaErrorPeerAccessAlreadyEnabled;
    peers |= 1u << peer;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return with_device("cudaDeviceDisablePeerAccess", peer, [&] {
    std::uint32_t& peers = peers_of_current();
    if ((peers >> peer & 1) == 0) return cudaErrorPeerAccessNotEnabled;
    peers &= ~(1u << peer);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute which, int value) {
  return locked_api("cudaFuncSetAttribute", [&](Lock& lock) {
    load_kernel(lock, current_device(), function);
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || static_cast<std::size_t>(value) > kSharedPerBlockOptin)
      return cudaErrorInvalidValue;
    runtime().max_shared[function] = static_cast<std::size_t>(value);
    return cudaSuccess;
  });
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
  return locked_api("cudaFuncGetAttributes", [&](Lock& lock) {
    load_kernel(lock, current_device(), function);
    const auto found = runtime().max_shared.find(function);
    *out = {};
    out->maxThreadsPerBlock = 1024;
    out->numRegs = kRegistersPerThread;
    out->maxDynamicSharedSizeBytes =
        static_cast<int>(found != runtime().max_shared.end() ? found->second : kSharedPerBlock);
    out->ptxVersion = out->binaryVersion = 90;
    return cudaSuccess;
  });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, size_t shared_bytes) {
  return locked_api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", [&](Lock& lock) {
    load_kernel(lock, current_device(), function);
    *blocks =
        static_cast<int>(blocks_per_sm(static_cast<unsigned>(std::max(threads, 0)), shared_bytes));
    return cudaSuccess;
  });
}

}  // extern "C"
