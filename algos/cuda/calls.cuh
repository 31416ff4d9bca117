// The kernel of a launch's collectives: one after another, in issue order.
//
// grid = lanes * channels blocks; block i is lane i mod lanes of channel i / lanes, in all calls. A
// call that has fewer lanes or channels leaves blocks idle.
//
// What orders the calls. Links belong to a channel, so calls meet only channel by channel: before a
// block begins a call, all blocks of its channel have ended the one before and written the links'
// numbers back (CudaPrims::finish), because they pass the channel's junction. Which lane uses which
// end, and how many there are, may then differ from call to call. A channel may be ahead of another
// one. Only a call that shares bytes with one before it waits, at the kernel's junction, for all
// channels, since calls cut their vectors differently.
//
// Why it cannot deadlock, whatever the other ranks' launches are: on each channel every rank runs
// the calls in issue order, as it would in a launch for each. Take the first call that some rank
// has not ended; all that any block of any rank can wait for before it, at a junction, is calls
// before it, and those end. And blocks are resident, because the engine reserved them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "algos/cuda/call.hpp"
#include "algos/cuda/junction.cuh"
#include "algos/cuda/kernels.hpp"
#include "algos/cuda/launch.cuh"
#include "algos/cuda/prims.cuh"

namespace treering::cuda {

// A text as an argument of a template.
template <std::size_t kSize>
struct Name {
  char text[kSize];
  constexpr Name(const char (&from)[kSize]) { std::copy_n(from, kSize, text); }  // NOLINT: implicit
};

// An algorithm of algos/*.hpp, over CudaPrims of a protocol.
template <Collective kCollective_, Name kName_, auto kRun_>
struct Routine {
  static constexpr Collective kCollective = kCollective_;
  static constexpr std::string_view kName = kName_.text;
  template <class Prims>
  TR_DEVICE static void run(Prims& prims) {
    kRun_(prims);
  }
};

// All that the kernels over P, CudaPrims of a protocol, can run. Its place in the list is an
// algorithm's number.
template <class P, class... Routines>
struct RoutineList {
  using Prims = P;
  static int find(Collective collective, std::string_view algorithm) {
    int at = 0;
    const bool found =
        ((++at, Routines::kCollective == collective && Routines::kName == algorithm) || ...);
    return found ? at - 1 : -1;
  }
  TR_DEVICE static void run(Prims& prims, int number) {
    int at = 0;
    (void)((at++ == number && (Routines::run(prims), true)) || ...);
  }
};

// All rounds of a channel.
template <class List>
TR_DEVICE void run_call(typename List::Prims& prims, const DeviceCall& call, int channel) {
  for (std::uint64_t round = channel; round < call.rounds && !prims.failed();
       round += call.channels) {
    prims.begin_round(round);
    List::run(prims, call.algorithm);
  }
}

template <class List, class Calls>
TR_KERNEL(kMaxThreads)
run_calls(TR_PARAMETER Calls batch) {
  __shared__ BlockState state;
  const int lane = block_id() % batch.lanes, channel = block_id() / batch.lanes;
  const DeviceLinkTable& links = batch.context.links;
  bool failed = false;  // this block, or one that it met
  for (int i = 0; i < batch.num_calls; ++i) {
    const DeviceCall& call = batch.calls[i];
    if (i > 0) {
      barrier_sync(0, block_threads());
      if (thread_id() == 0) {
        state.junction_failed = call.shares_bytes
                                    ? pass(links.junctions[links.channels], grid_blocks(), failed)
                                    : pass(links.junctions[channel], batch.lanes, failed);
      }
      barrier_sync(0, block_threads());
      failed = state.junction_failed;
    }
    // Who has failed goes on from junction to junction: others may wait there.
    if (failed || lane >= call.lanes || channel >= call.channels) continue;
    typename List::Prims prims(batch.context, call, batch.words, state, lane, channel);
    run_call<List>(prims, call, channel);
    prims.finish();
    failed = prims.failed();
  }
}

template <class List, class Calls>
cudaError_t launch_calls_as(const DeviceContext& context, const CallList& list, int threads,
                            cudaStream_t stream) {
  Calls batch;
  batch.context = context;
  batch.num_calls = static_cast<std::int32_t>(list.calls.size());
  batch.lanes = list.lanes;
  std::copy(list.calls.begin(), list.calls.end(), batch.calls);
  std::copy(list.words.begin(), list.words.end(), batch.words);
  return launch(run_calls<List, Calls>, dim3(static_cast<unsigned>(list.lanes * list.channels)),
                dim3(static_cast<unsigned>(threads)), 0, stream, batch);
}

template <class List>
cudaError_t launch_calls(const DeviceContext& context, const CallList& list, int threads,
                         cudaStream_t stream) {
  return FewDeviceCalls::holds(list.calls.size(), list.words.size())
             ? launch_calls_as<List, FewDeviceCalls>(context, list, threads, stream)
             : launch_calls_as<List, ManyDeviceCalls>(context, list, threads, stream);
}

}  // namespace treering::cuda
