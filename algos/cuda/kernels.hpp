// The collectives' kernels: which there are, and how one is started. No CUDA header: the engine's
// host code includes this.
//
// A kernel is an algorithm of algos/*.hpp over CudaPrims<Protocol>; grid = lanes * channels blocks,
// block i runs lane i mod lanes of channel i / lanes. Sends and receives have a kernel of their
// own, of any number of blocks a channel (algos/cuda/messages.cuh).
#pragma once

#include <span>
#include <string_view>

#include "core/device_link.hpp"
#include "core/types.hpp"

namespace treering::cuda {

struct DeviceCall;     // algos/cuda/call.hpp
struct DeviceMessage;  // algos/cuda/call.hpp

inline constexpr int kMaxThreads = 256;  // of a block

struct DeviceKernel {
  Collective collective;
  const char* algorithm;  // as in the registry: "ring"
  DeviceProtocol protocol;
  void (*entry)(DeviceCall);  // __global__
};

const DeviceKernel* find_kernel(Collective collective, std::string_view algorithm,
                                DeviceProtocol protocol);

// Starts kernel(call) on `stream` (a cudaStream_t) with `blocks` blocks of `threads` threads.
// Returns a cudaError_t.
int start_kernel(const DeviceKernel& kernel, const DeviceCall& call, int blocks, int threads,
                 void* stream);
// Starts the kernel of sends and receives: at most kMostMessages, sorted by lanes, none of them
// empty. `blocks` is a multiple of call.channels. Returns a cudaError_t.
int start_messages(const DeviceCall& call, std::span<const DeviceMessage> messages, int blocks,
                   int threads, void* stream);
// Loads all kernels on the current device, so that starting one does not, and says how many blocks
// of kMaxThreads threads the device holds at once, of the kernel that needs most. Returns a
// cudaError_t.
int load_kernels(int* blocks);

}  // namespace treering::cuda
