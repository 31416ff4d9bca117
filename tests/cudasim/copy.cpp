// Copies and fills: operations on a stream.
#include <chrono>
#include <thread>
#include <vector>

#include "runtime.hpp"

using namespace cudasim;

namespace {

bool is_device(const Place& place) {
  return place.kind == Place::Kind::kDevice || place.kind == Place::Kind::kIpc ||
         place.kind == Place::Kind::kVmm;
}

bool fits(const Place& place, const void* p, std::size_t bytes) {
  return place.kind == Place::Kind::kNone ||
         reinterpret_cast<std::uintptr_t>(p) - place.base + bytes <= place.bytes;
}

// What is wrong between the device that copies and the memory: returns when the copy may end; does
// anything arrive?
bool gets_through(int device, const Place& place) {
  if (place.owner < 0) return true;
  std::atomic<Between>& state = between(device, place.owner);
  while (state == Between::kHangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return state != Between::kLoses;
}

// A kind that names the wrong side is refused, as drivers do.
bool matches(cudaMemcpyKind kind, bool to_device, bool from_device) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

cudaError_t copy(const char* name, void* to, const void* from, std::size_t bytes,
                 cudaMemcpyKind kind, cudaStream_t handle, bool is_async) {
  return with_stream(name, handle, [&](Lock& lock, Stream& stream) {
    if (!is_async) {
      if (const cudaError_t error = unsafe_call(lock); error != cudaSuccess) return error;
    }
    if (bytes == 0) return cudaSuccess;
    const Place target = place_of(lock, to);
    const Place source = place_of(lock, from);
    if (to == nullptr || from == nullptr || !fits(target, to, bytes) ||
        !fits(source, from, bytes) || !matches(kind, is_device(target), is_device(source))) {
      return cudaErrorInvalidValue;
    }
    OpRef op;
    const auto move = [=, device = stream.device] {
      if (gets_through(device, source) && gets_through(device, target))
        std::memmove(to, from, bytes);
    };
    const cudaError_t error = submit(lock, stream, cudaGraphNodeTypeMemcpy, move, &op);
    // Between devices even cudaMemcpy does not wait. With pageable memory even cudaMemcpyAsync
    // does.
    const bool is_pageable = target.kind == Place::Kind::kNone || source.kind == Place::Kind::kNone;
    const bool waits = is_async ? is_pageable : !(is_device(target) && is_device(source));
    if (waits && op != nullptr) wait_for(lock, op, name);
    return error;
  });
}

cudaError_t fill(const char* name, void* p, int value, std::size_t bytes, cudaStream_t handle,
                 bool is_async) {
  return with_stream(name, handle, [&](Lock& lock, Stream& stream) {
    if (bytes == 0) return cudaSuccess;
    const Place place = place_of(lock, p);
    if (place.kind == Place::Kind::kNone || !fits(place, p, bytes)) return cudaErrorInvalidValue;
    OpRef op;
    const cudaError_t error = submit(
        lock, stream, cudaGraphNodeTypeMemset, [=] { std::memset(p, value, bytes); }, &op);
    // cudaMemset waits for pinned host memory only.
    if (!is_async && !is_device(place) && op != nullptr) wait_for(lock, op, name);
    return error;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy("cudaMemcpy", to, from, bytes, kind, nullptr, false);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy("cudaMemcpyAsync", to, from, bytes, kind, stream, true);
}
// Between devices without peer access the driver goes through the host, so none is asked for.
cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return copy("cudaMemcpyPeer", to, from, bytes, cudaMemcpyDeviceToDevice, nullptr, false);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t stream) {
  return copy("cudaMemcpyPeerAsync", to, from, bytes, cudaMemcpyDeviceToDevice, stream, true);
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  return fill("cudaMemset", p, value, bytes, nullptr, false);
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  return fill("cudaMemsetAsync", p, value, bytes, stream, true);
}

}  // extern "C"
