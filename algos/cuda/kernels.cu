#include <algorithm>
#include <limits>
#include <span>

#include "algos/barrier.hpp"
#include "algos/cuda/calls.cuh"
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

using C = Collective;
namespace a = algos;

// Algorithms on links, for every protocol, and what else one has.
template <class P, class... Others>
using OnLinks = RoutineList<P, Routine<C::kAllReduce, "local", a::local::fold<P>>,
                            Routine<C::kAllReduce, "ring", a::ring::all_reduce<P>>,
                            Routine<C::kAllReduce, "tree", a::tree::all_reduce<P>>,
                            Routine<C::kAllReduce, "one_shot", a::direct::one_shot_all_reduce<P>>,
                            Routine<C::kAllReduce, "two_shot", a::direct::two_shot_all_reduce<P>>,
                            Routine<C::kReduce, "local", a::local::fold<P>>,
                            Routine<C::kReduce, "ring", a::ring::reduce<P>>,
                            Routine<C::kReduce, "tree", a::tree::reduce<P>>,
                            Routine<C::kReduce, "direct", a::direct::reduce<P>>,
                            Routine<C::kBroadcast, "local", a::local::move<P>>,
                            Routine<C::kBroadcast, "ring", a::ring::broadcast<P>>,
                            Routine<C::kBroadcast, "tree", a::tree::broadcast<P>>,
                            Routine<C::kBroadcast, "direct", a::direct::broadcast<P>>,
                            Routine<C::kAllGather, "local", a::local::move<P>>,
                            Routine<C::kAllGather, "ring", a::ring::all_gather<P>>,
                            Routine<C::kAllGather, "direct", a::direct::all_gather<P>>,
                            Routine<C::kReduceScatter, "local", a::local::fold<P>>,
                            Routine<C::kReduceScatter, "ring", a::ring::reduce_scatter<P>>,
                            Routine<C::kReduceScatter, "direct", a::direct::reduce_scatter<P>>,
                            Routine<C::kGather, "local", a::local::move<P>>,
                            Routine<C::kGather, "direct", a::direct::gather<P>>,
                            Routine<C::kScatter, "local", a::local::move<P>>,
                            Routine<C::kScatter, "direct", a::direct::scatter<P>>,
                            Routine<C::kAllToAll, "local", a::local::move<P>>,
                            Routine<C::kAllToAll, "pairwise", a::pairwise::all_to_all<P>>,
                            Routine<C::kScan, "local", a::local::fold<P>>,
                            Routine<C::kScan, "direct", a::direct::scan<P>>,
                            Routine<C::kExscan, "local", a::local::nothing<P>>,
                            Routine<C::kExscan, "direct", a::direct::exscan<P>>,
                            Routine<C::kBarrier, "local", a::local::nothing<P>>,
                            Routine<C::kBarrier, "direct", a::barrier::direct<P>>, Others...>;

// (Types of their own: the names of kernels would spell a list out.) The signals of those on
// windows are messages of Simple.
using SimplePrims = CudaPrims<Simple>;
struct SimpleRoutines
    : OnLinks<
          SimplePrims,
          Routine<C::kAllReduce, "window", a::window::two_shot_all_reduce<SimplePrims>>,
          Routine<C::kAllReduce, "window_one_shot", a::window::one_shot_all_reduce<SimplePrims>>,
          Routine<C::kAllGather, "window", a::window::all_gather<SimplePrims>>,
          Routine<C::kReduceScatter, "window", a::window::reduce_scatter<SimplePrims>>> {};
struct LLRoutines : OnLinks<CudaPrims<LL>> {};
struct LL128Routines : OnLinks<CudaPrims<LL128>> {};

namespace {

// Lowers *blocks to how many blocks of the kernel a multiprocessor holds.
template <class Kernel>
cudaError_t load_kernel(Kernel entry, int* blocks) {
  int fit = 0;
  cudaError_t error = load(entry);
  if (error == cudaSuccess) error = blocks_per_sm(&fit, entry, kMaxThreads, 0);
  if (error == cudaSuccess) *blocks = std::min(*blocks, fit);
  return error;
}

template <class List>
cudaError_t load_calls(int* blocks) {
  const cudaError_t error = load_kernel(run_calls<List, FewDeviceCalls>, blocks);
  return error == cudaSuccess ? load_kernel(run_calls<List, ManyDeviceCalls>, blocks) : error;
}

}  // namespace

int find_algorithm(Collective collective, std::string_view algorithm, DeviceProtocol protocol) {
  switch (protocol) {
    case DeviceProtocol::kSimple:
      return SimpleRoutines::find(collective, algorithm);
    case DeviceProtocol::kLL:
      return LLRoutines::find(collective, algorithm);
    case DeviceProtocol::kLL128:
      return LL128Routines::find(collective, algorithm);
  }
  return -1;
}

int start_calls(DeviceProtocol protocol, const DeviceContext& context, const CallList& list,
                int threads, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  switch (protocol) {
    case DeviceProtocol::kSimple:
      return launch_calls<SimpleRoutines>(context, list, threads, s);
    case DeviceProtocol::kLL:
      return launch_calls<LLRoutines>(context, list, threads, s);
    case DeviceProtocol::kLL128:
      return launch_calls<LL128Routines>(context, list, threads, s);
  }
  return cudaErrorInvalidValue;
}

int start_messages(const DeviceContext& context, std::span<const DeviceMessage> messages,
                   int blocks, int threads, void* stream) {
  return launch_messages(context, messages, blocks, threads, static_cast<cudaStream_t>(stream));
}

int load_kernels(int* blocks) {
  int device = 0, processors = 0, per_processor = std::numeric_limits<int>::max();
  cudaError_t error = load_calls<SimpleRoutines>(&per_processor);
  if (error == cudaSuccess) error = load_calls<LLRoutines>(&per_processor);
  if (error == cudaSuccess) error = load_calls<LL128Routines>(&per_processor);
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
