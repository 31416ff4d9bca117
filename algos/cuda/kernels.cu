#include <algorithm>
#include <limits>
#include <span>

#include "algos/barrier.hpp"
#include "algos/cuda/kernels.hpp"
#include "algos/cuda/launch.cuh"
#include "algos/cuda/ll.cuh"
#include "algos/cuda/ll128.cuh"
#include "algos/cuda/messages.cuh"
#include "algos/cuda/prims.cuh"
#include "algos/cuda/simple.cuh"
#include "algos/cuda/windows.cuh"
#include "algos/direct.hpp"
#include "algos/local.hpp"
#include "algos/pairwise.hpp"
#include "algos/ring.hpp"
#include "algos/tree.hpp"
#include "algos/window.hpp"

namespace treering::cuda {
namespace {

template <class Protocol, void (*kAlgorithm)(CudaPrims<Protocol>&)>
TR_KERNEL(kMaxThreads)
run(TR_PARAMETER DeviceCall call) {
  __shared__ BlockState state;
  const int channels = static_cast<int>(call.channels);
  const int lanes = grid_blocks() / channels;
  const int channel = block_id() / lanes;
  CudaPrims<Protocol> prims(call, state, block_id() % lanes, channel);
  for (std::uint64_t round = channel; round < call.rounds && !prims.failed(); round += channels) {
    prims.begin_round(round);
    kAlgorithm(prims);
  }
  prims.finish();
}

using C = Collective;
namespace a = algos;

// Algorithms on links, once for each protocol.
template <class P>
std::span<const DeviceKernel> kernels_of() {
  using Prims = CudaPrims<P>;
  static const DeviceKernel kKernels[] = {
      {C::kAllReduce, "local", P::kId, run<P, a::local::fold<Prims>>},
      {C::kAllReduce, "ring", P::kId, run<P, a::ring::all_reduce<Prims>>},
      {C::kAllReduce, "tree", P::kId, run<P, a::tree::all_reduce<Prims>>},
      {C::kAllReduce, "one_shot", P::kId, run<P, a::direct::one_shot_all_reduce<Prims>>},
      {C::kAllReduce, "two_shot", P::kId, run<P, a::direct::two_shot_all_reduce<Prims>>},
      {C::kReduce, "local", P::kId, run<P, a::local::fold<Prims>>},
      {C::kReduce, "ring", P::kId, run<P, a::ring::reduce<Prims>>},
      {C::kReduce, "tree", P::kId, run<P, a::tree::reduce<Prims>>},
      {C::kReduce, "direct", P::kId, run<P, a::direct::reduce<Prims>>},
      {C::kBroadcast, "local", P::kId, run<P, a::local::move<Prims>>},
      {C::kBroadcast, "ring", P::kId, run<P, a::ring::broadcast<Prims>>},
      {C::kBroadcast, "tree", P::kId, run<P, a::tree::broadcast<Prims>>},
      {C::kBroadcast, "direct", P::kId, run<P, a::direct::broadcast<Prims>>},
      {C::kAllGather, "local", P::kId, run<P, a::local::move<Prims>>},
      {C::kAllGather, "ring", P::kId, run<P, a::ring::all_gather<Prims>>},
      {C::kAllGather, "direct", P::kId, run<P, a::direct::all_gather<Prims>>},
      {C::kReduceScatter, "local", P::kId, run<P, a::local::fold<Prims>>},
      {C::kReduceScatter, "ring", P::kId, run<P, a::ring::reduce_scatter<Prims>>},
      {C::kReduceScatter, "direct", P::kId, run<P, a::direct::reduce_scatter<Prims>>},
      {C::kGather, "local", P::kId, run<P, a::local::move<Prims>>},
      {C::kGather, "direct", P::kId, run<P, a::direct::gather<Prims>>},
      {C::kScatter, "local", P::kId, run<P, a::local::move<Prims>>},
      {C::kScatter, "direct", P::kId, run<P, a::direct::scatter<Prims>>},
      {C::kAllToAll, "local", P::kId, run<P, a::local::move<Prims>>},
      {C::kAllToAll, "pairwise", P::kId, run<P, a::pairwise::all_to_all<Prims>>},
      {C::kScan, "local", P::kId, run<P, a::local::fold<Prims>>},
      {C::kScan, "direct", P::kId, run<P, a::direct::scan<Prims>>},
      {C::kExscan, "local", P::kId, run<P, a::local::nothing<Prims>>},
      {C::kExscan, "direct", P::kId, run<P, a::direct::exscan<Prims>>},
      {C::kBarrier, "local", P::kId, run<P, a::local::nothing<Prims>>},
      {C::kBarrier, "direct", P::kId, run<P, a::barrier::direct<Prims>>},
  };
  return kKernels;
}

// Those on windows, whose signals are messages of Simple.
std::span<const DeviceKernel> window_kernels() {
  using P = Simple;
  using Prims = CudaPrims<P>;
  static const DeviceKernel kKernels[] = {
      {C::kAllReduce, "window", P::kId, run<P, a::window::two_shot_all_reduce<Prims>>},
      {C::kAllReduce, "window_one_shot", P::kId, run<P, a::window::one_shot_all_reduce<Prims>>},
      {C::kAllGather, "window", P::kId, run<P, a::window::all_gather<Prims>>},
      {C::kReduceScatter, "window", P::kId, run<P, a::window::reduce_scatter<Prims>>},
  };
  return kKernels;
}

const DeviceKernel* find_in(std::span<const DeviceKernel> kernels, Collective collective,
                            std::string_view algorithm) {
  for (const DeviceKernel& kernel : kernels) {
    if (kernel.collective == collective && algorithm == kernel.algorithm) return &kernel;
  }
  return nullptr;
}

// Lowers *blocks to how many blocks of the kernel a multiprocessor holds.
template <class Kernel>
cudaError_t load_kernel(Kernel entry, int* blocks) {
  int fit = 0;
  cudaError_t error = load(entry);
  if (error == cudaSuccess) error = blocks_per_sm(&fit, entry, kMaxThreads, 0);
  if (error == cudaSuccess) *blocks = std::min(*blocks, fit);
  return error;
}

cudaError_t load_all(std::span<const DeviceKernel> kernels, int* blocks) {
  for (const DeviceKernel& kernel : kernels) {
    const cudaError_t error = load_kernel(kernel.entry, blocks);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

const DeviceKernel* find_kernel(Collective collective, std::string_view algorithm,
                                DeviceProtocol protocol) {
  switch (protocol) {
    case DeviceProtocol::kSimple: {
      const DeviceKernel* found = find_in(kernels_of<Simple>(), collective, algorithm);
      return found != nullptr ? found : find_in(window_kernels(), collective, algorithm);
    }
    case DeviceProtocol::kLL:
      return find_in(kernels_of<LL>(), collective, algorithm);
    case DeviceProtocol::kLL128:
      return find_in(kernels_of<LL128>(), collective, algorithm);
  }
  return nullptr;
}

int start_kernel(const DeviceKernel& kernel, const DeviceCall& call, int blocks, int threads,
                 void* stream) {
  return launch(kernel.entry, dim3(static_cast<unsigned>(blocks)),
                dim3(static_cast<unsigned>(threads)), 0, static_cast<cudaStream_t>(stream), call);
}

int start_messages(const DeviceCall& call, std::span<const DeviceMessage> messages, int blocks,
                   int threads, void* stream) {
  return launch_messages(call, messages, blocks, threads, static_cast<cudaStream_t>(stream));
}

int load_kernels(int* blocks) {
  int device = 0, processors = 0, per_processor = std::numeric_limits<int>::max();
  cudaError_t error = load_all(kernels_of<Simple>(), &per_processor);
  if (error == cudaSuccess) error = load_all(window_kernels(), &per_processor);
  if (error == cudaSuccess) error = load_all(kernels_of<LL>(), &per_processor);
  if (error == cudaSuccess) error = load_all(kernels_of<LL128>(), &per_processor);
  if (error == cudaSuccess) {
    error = load_kernel(run_messages<Simple, kFewMessages>, &per_processor);
  }
  if (error == cudaSuccess) {
    error = load_kernel(run_messages<Simple, kMostMessages>, &per_processor);
  }
  if (error == cudaSuccess) error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error == cudaSuccess) *blocks = processors * per_processor;
  return error;
}

}  // namespace treering::cuda
