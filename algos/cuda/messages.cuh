// The kernel of a group's sends and receives: all lanes progress together, on however few blocks.
//
// A lane is what goes to one peer, or what comes from it, message after message; it runs on every
// channel, whose links are of its own. The blocks of a channel share its lanes out among them, and
// a block serves its lanes in turn, one slice at a time: thread 0 looks for a lane that can move
// and all threads move the slice.
//
// Why it cannot deadlock: a block waits only while none of its lanes can move, and moving a slice
// waits for nothing (a message that is there stays, and so does room: this block alone uses that
// end). So a lane whose link allows it goes on after finitely many slices of others, as if it had
// a block to itself; blocks are resident, because the engine reserved them. What is left is waiting
// for the peer to call.
#pragma once

#include <span>

#include "algos/cuda/launch.cuh"
#include "algos/cuda/prims.cuh"
#include "algos/cuda/simple.cuh"
#include "algos/point_to_point.hpp"

namespace treering::cuda {

// Where the lanes of a block are. Lies in shared memory, without constructors; thread 0 writes it.
struct LanesState {
  struct Lane {
    std::int32_t message, end;  // the message at hand; equal: none is left
    std::uint64_t slice;        // the next one of this channel
  };
  Lane lanes[2 * kMaxDeviceRanks];
  std::int32_t num_lanes;
  std::int32_t at;  // whose turn it is
  // What all threads do next; message < 0: end.
  std::int32_t message;
  std::uint64_t slice;
};

// Thread 0's part: which slice is next.
template <int kMost>
class Turns {
 public:
  TR_DEVICE Turns(const DeviceMessages<kMost>& batch, LanesState& state, int channel)
      : batch_(batch), state_(state), channel_(static_cast<std::uint64_t>(channel)) {}

  // The lanes of this block, the worker-th of the channel's.
  TR_DEVICE void start(int worker, int workers) {
    state_.num_lanes = state_.at = 0;
    for (int i = worker; i < batch_.lanes; i += workers) {
      LanesState::Lane& lane = state_.lanes[state_.num_lanes];
      lane = {batch_.begin[i], batch_.begin[i + 1], channel_};
      skip_done(lane);
      if (lane.message < lane.end) ++state_.num_lanes;
    }
  }

  template <class Prims>
  TR_DEVICE void next(Prims& prims) {
    state_.message = -1;
    const DeviceReport::State why =
        wait_until(batch_.context, [&] { return state_.num_lanes == 0 || take(prims); });
    if (why == DeviceReport::kFine) return;
    const LanesState::Lane& lane = state_.lanes[state_.at];
    prims.give_up_message(why, batch_.messages[lane.message], lane.slice);
  }

 private:
  template <class Prims>
  TR_DEVICE bool take(Prims& prims) {
    for (int i = 0; i < state_.num_lanes; ++i) {
      LanesState::Lane& lane = state_.lanes[(state_.at + i) % state_.num_lanes];
      if (!prims.can_move(batch_.messages[lane.message])) continue;
      state_.message = lane.message;
      state_.slice = lane.slice;
      state_.at = (state_.at + i + 1) % state_.num_lanes;
      lane.slice += batch_.call.channels;
      skip_done(lane);
      if (lane.message == lane.end) drop(lane);
      return true;
    }
    return false;
  }
  // On to the next message that has a slice on this channel.
  TR_DEVICE void skip_done(LanesState::Lane& lane) const {
    while (lane.message < lane.end) {
      const DeviceMessage& m = batch_.messages[lane.message];
      if (lane.slice * m.slice_elems < m.elems) return;
      ++lane.message;
      lane.slice = channel_;
    }
  }
  TR_DEVICE void drop(LanesState::Lane& lane) {
    lane = state_.lanes[--state_.num_lanes];
    if (state_.at >= state_.num_lanes) state_.at = 0;
  }

  const DeviceMessages<kMost>& batch_;
  LanesState& state_;
  std::uint64_t channel_;
};

template <class Protocol, int kMost>
TR_KERNEL(kMaxThreads)
run_messages(TR_PARAMETER DeviceMessages<kMost> batch) {
  __shared__ BlockState state;
  __shared__ LanesState lanes;
  const int channels = static_cast<int>(batch.call.channels);
  const int workers = grid_blocks() / channels;
  const int channel = block_id() / workers;
  CudaPrims<Protocol> prims(batch.context, batch.call, nullptr, state, 0, channel);
  Turns<kMost> turns(batch, lanes, channel);
  if (thread_id() == 0) turns.start(block_id() % workers, workers);
  for (;;) {
    if (thread_id() == 0) turns.next(prims);
    barrier_sync(0, block_threads());
    if (lanes.message < 0) break;
    const DeviceMessage& message = batch.messages[lanes.message];
    prims.begin_message(message);
    prims.begin_round(lanes.slice);
    // The barriers in there keep the next turn from being written before all have read this one.
    message.is_send ? algos::point_to_point::send(prims) : algos::point_to_point::recv(prims);
    if (prims.failed()) break;
  }
  prims.finish();
}

template <int kMost>
cudaError_t launch_messages(const DeviceContext& context, std::span<const DeviceMessage> messages,
                            int blocks, int threads, cudaStream_t stream) {
  DeviceMessages<kMost> batch;
  batch.context = context;
  batch.call.collective = Collective::kSendRecv;
  batch.call.channels = static_cast<std::uint16_t>(context.links.channels);
  batch.lanes = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const DeviceMessage& m = messages[i];
    batch.messages[i] = m;
    const bool same_lane =
        i > 0 && m.peer == messages[i - 1].peer && m.is_send == messages[i - 1].is_send;
    if (!same_lane) batch.begin[batch.lanes++] = static_cast<std::uint16_t>(i);
  }
  batch.begin[batch.lanes] = static_cast<std::uint16_t>(messages.size());
  return launch(run_messages<Simple, kMost>, dim3(static_cast<unsigned>(blocks)),
                dim3(static_cast<unsigned>(threads)), 0, stream, batch);
}

inline cudaError_t launch_messages(const DeviceContext& context,
                                   std::span<const DeviceMessage> messages, int blocks, int threads,
                                   cudaStream_t stream) {
  return messages.size() <= kFewMessages
             ? launch_messages<kFewMessages>(context, messages, blocks, threads, stream)
             : launch_messages<kMostMessages>(context, messages, blocks, threads, stream);
}

}  // namespace treering::cuda
