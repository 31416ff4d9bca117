// One algorithm, and messages, in the place of algos/cuda/kernels.cu, for programs that build the
// kernels anew, with a fault (algos/cuda/fault.cuh) or with ThreadSanitizer: a second instead of
// twenty.
#include "algos/cuda/kernels.hpp"
#include "algos/cuda/launch.cuh"
#include "algos/cuda/ll.cuh"
#include "algos/cuda/ll128.cuh"
#include "algos/cuda/messages.cuh"
#include "algos/cuda/prims.cuh"
#include "algos/cuda/simple.cuh"
#include "algos/ring.hpp"

namespace treering::cuda {
namespace {

template <class Protocol>
TR_KERNEL(kMaxThreads)
run_ring(TR_PARAMETER DeviceCall call) {
  __shared__ BlockState state;
  const int channels = static_cast<int>(call.channels);
  CudaPrims<Protocol> prims(call, state, 0, block_id());
  for (std::uint64_t round = block_id(); round < call.rounds && !prims.failed();
       round += channels) {
    prims.begin_round(round);
    algos::ring::all_reduce(prims);
  }
  prims.finish();
}

}  // namespace

const DeviceKernel* find_kernel(Collective, std::string_view, DeviceProtocol protocol) {
  static const DeviceKernel kKernels[] = {
      {Collective::kAllReduce, "ring", DeviceProtocol::kSimple, run_ring<Simple>},
      {Collective::kAllReduce, "ring", DeviceProtocol::kLL, run_ring<LL>},
      {Collective::kAllReduce, "ring", DeviceProtocol::kLL128, run_ring<LL128>}};
  return &kKernels[static_cast<int>(protocol)];
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
