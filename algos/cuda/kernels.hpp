// The kernels: what they can run, and how one is started. No CUDA header: the engine's host code
// includes this.
//
// There is one for the collectives of a protocol (algos/cuda/calls.cuh), which runs algorithms of
// algos/*.hpp over CudaPrims<Protocol>, and one for sends and receives (algos/cuda/messages.cuh);
// each for few calls and for many, by the size of its parameter.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/device_link.hpp"
#include "core/types.hpp"

namespace treering::cuda {

// algos/cuda/call.hpp
struct DeviceCall;
struct DeviceContext;
struct DeviceMessage;

inline constexpr int kMaxThreads = 256;  // of a block

// The number (DeviceCall::algorithm) of an algorithm, named as in the registry: "ring". < 0: there
// is none.
int find_algorithm(Collective collective, std::string_view algorithm, DeviceProtocol protocol);

// The collectives of one launch, at most kMostCalls with kMostWords, and their table.
struct CallList {
  std::span<const DeviceCall> calls;
  std::span<const std::uint64_t> words;
  int lanes = 1;  // the most that a call has; so channels
  int channels = 1;
};
// Starts their kernel on `stream` (a cudaStream_t) with lanes * channels blocks of `threads`
// threads. Returns a cudaError_t.
int start_calls(DeviceProtocol protocol, const DeviceContext& context, const CallList& list,
                int threads, void* stream);
// Starts the kernel of sends and receives: at most kMostMessages, sorted by lanes, none of them
// empty. `blocks` is a multiple of the links' channels. Returns a cudaError_t.
int start_messages(const DeviceContext& context, std::span<const DeviceMessage> messages,
                   int blocks, int threads, void* stream);
// Loads all kernels on the current device, so that starting one does not, and says how many blocks
// of kMaxThreads threads the device holds at once, of the kernel that needs most. Returns a
// cudaError_t.
int load_kernels(int* blocks);

}  // namespace treering::cuda
