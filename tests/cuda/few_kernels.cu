// Two algorithms, and messages, in the place of algos/cuda/kernels.cu, for programs that build the
// kernels anew, with a fault (algos/cuda/fault.cuh) or with ThreadSanitizer: a second instead of
// twenty.
#include "algos/cuda/calls.cuh"
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

template <class P, class... Others>
using Ring =
    RoutineList<P, Routine<Collective::kAllReduce, "ring", algos::ring::all_reduce<P>>, Others...>;
using SimplePrims = CudaPrims<Simple>;
struct FewOfSimple
    : Ring<SimplePrims, Routine<Collective::kAllReduce, "window", window_sums<SimplePrims>>> {};
struct FewOfLl : Ring<CudaPrims<LL>> {};
struct FewOfLl128 : Ring<CudaPrims<LL128>> {};

int find_algorithm(Collective collective, std::string_view algorithm, DeviceProtocol) {
  return FewOfSimple::find(collective, algorithm);
}

int start_calls(DeviceProtocol protocol, const DeviceContext& context, const CallList& list,
                int threads, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  switch (protocol) {
    case DeviceProtocol::kLL:
      return launch_calls<FewOfLl>(context, list, threads, s);
    case DeviceProtocol::kLL128:
      return launch_calls<FewOfLl128>(context, list, threads, s);
    default:
      return launch_calls<FewOfSimple>(context, list, threads, s);
  }
}

int start_messages(const DeviceContext& context, std::span<const DeviceMessage> messages,
                   int blocks, int threads, void* stream) {
  return launch_messages(context, messages, blocks, threads, static_cast<cudaStream_t>(stream));
}

int load_kernels(int* blocks) {
  *blocks = 128;
  return cudaSuccess;
}

}  // namespace treering::cuda
