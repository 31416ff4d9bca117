// Two algorithms, and messages, in the place of algos/cuda/kernels.cu, for programs that build the
// kernels anew, with a fault (algos/cuda/fault.cuh) or with ThreadSanitizer: a second instead of
// twenty.
#include "algos/cuda/kernels.hpp"
#include "algos/cuda/launch.cuh"
#include "algos/cuda/ll.cuh"
#include "algos/cuda/ll128.cuh"
#include "algos/cuda/messages.cuh"
#include "algos/cuda/prims.cuh"
#include "algos/cuda/simple.cuh"
#include "algos/cuda/windows.cuh"
#include "algos/ring.hpp"
#include "cuda/few_kernels.hpp"

namespace treering::cuda {
namespace {

template <class Protocol, void (*kAlgorithm)(CudaPrims<Protocol>&)>
TR_KERNEL(kMaxThreads)
run(TR_PARAMETER DeviceCall call) {
  __shared__ BlockState state;
  const int channels = static_cast<int>(call.channels);
  CudaPrims<Protocol> prims(call, state, 0, block_id());
  for (std::uint64_t round = block_id(); round < call.rounds && !prims.failed();
       round += channels) {
    prims.begin_round(round);
    kAlgorithm(prims);
  }
  prims.finish();
}

template <class P>
TR_HD void window_sums(P& p) {
  for (int turn = 0; turn < kFewKernelsTurns; ++turn) {
    p.publish();
    p.await_all();
    p.reduce_store_all(algos::mod(p.rank() + turn, p.size()), Last::kYes);
  }
  p.publish();
  p.await_all();
}

template <class P>
constexpr DeviceKernel ring_of() {
  return {Collective::kAllReduce, "ring", P::kId, run<P, algos::ring::all_reduce<CudaPrims<P>>>};
}

}  // namespace

const DeviceKernel* find_kernel(Collective, std::string_view algorithm, DeviceProtocol protocol) {
  static const DeviceKernel kRings[] = {ring_of<Simple>(), ring_of<LL>(), ring_of<LL128>()};
  static const DeviceKernel kWindow = {Collective::kAllReduce, "window", DeviceProtocol::kSimple,
                                       run<Simple, window_sums>};
  return algorithm == "window" ? &kWindow : &kRings[static_cast<int>(protocol)];
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
  *blocks = 128;
  return cudaSuccess;
}

}  // namespace treering::cuda
