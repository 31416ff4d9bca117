// The treering backend on a GPU: streams beside the one that computes, and events between them.
//
// As on the host (host_flow.cpp), collectives share a stream and each message has one of its own.
// Waiting puts an event into the compute stream, so that the host runs on.
#include <cuda_runtime.h>
#include <deque>
#include <utility>
#include <vector>

#include "treering/treering.hpp"

#include "parallel/cuda_status.hpp"
#include "parallel/flow.hpp"
#include "parallel/try.hpp"

namespace tr::par {
namespace {

// A CUDA stream of communication, and what the library calls it. `event` orders it with others.
struct Lane {
  Lane() = default;
  Lane(Lane&& other) noexcept { swap(other); }
  Lane& operator=(Lane&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Lane() {
    if (stream != nullptr) (void)tr_stream_destroy(stream);  // waits
    if (event != nullptr) (void)cudaEventDestroy(event);
    if (cuda != nullptr) (void)cudaStreamDestroy(cuda);
  }
  static Result<Lane> make() {
    Lane lane;
    TRY(cuda_status(cudaStreamCreateWithFlags(&lane.cuda, cudaStreamNonBlocking),
                    "making a stream"));
    TRY(cuda_status(cudaEventCreateWithFlags(&lane.event, cudaEventDisableTiming),
                    "making an event"));
    TRY(Status::of(tr_stream_from_cuda(&lane.stream, lane.cuda)));
    return lane;
  }
  void swap(Lane& other) noexcept {
    std::swap(cuda, other.cuda);
    std::swap(event, other.event);
    std::swap(stream, other.stream);
  }

  cudaStream_t cuda = nullptr;
  cudaEvent_t event = nullptr;
  tr_stream_t stream = nullptr;
};

// `later` goes on when what is on `earlier` now is done. An event may be recorded anew while
// streams still wait for what it was.
Status put_after(cudaStream_t later, cudaStream_t earlier, cudaEvent_t event) {
  TRY(cuda_status(cudaEventRecord(event, earlier), "recording an event"));
  return cuda_status(cudaStreamWaitEvent(later, event, 0), "waiting for an event");
}

class CudaFlow final : public Flow {
 public:
  CudaFlow(cudaStream_t compute, Lane collectives)
      : compute_(compute), collectives_(std::move(collectives)) {}
  ~CudaFlow() override {
    for (const Collective& one : issued_) (void)cudaEventDestroy(one.done);
    for (cudaEvent_t event : idle_events_) (void)cudaEventDestroy(event);
  }

  Result<tr_stream_t> begin(Kind kind) override {
    kind_ = kind;
    if (kind == Kind::kMessage && idle_lanes_.empty()) {
      TRY_ASSIGN(Lane made, Lane::make());
      idle_lanes_.push_back(std::move(made));
    }
    const Lane& lane = kind == Kind::kMessage ? idle_lanes_.back() : collectives_;
    TRY(put_after(lane.cuda, compute_, lane.event));
    return lane.stream;
  }

  Status end(Mark mark) override {
    if (kind_ == Kind::kMessage) {
      messages_.push_back({mark, std::move(idle_lanes_.back())});
      idle_lanes_.pop_back();
      return {};
    }
    if (idle_events_.empty()) {
      cudaEvent_t made = nullptr;
      TRY(cuda_status(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "making an event"));
      idle_events_.push_back(made);
    }
    issued_.push_back({mark, idle_events_.back()});
    idle_events_.pop_back();
    return cuda_status(cudaEventRecord(issued_.back().done, collectives_.cuda),
                       "recording an event");
  }

  Status wait(Mark mark) override {
    for (auto it = messages_.begin(); it != messages_.end(); ++it) {
      if (it->mark == mark) return join(it);
    }
    cudaEvent_t last = nullptr;
    while (!issued_.empty() && issued_.front().mark <= mark) {
      last = issued_.front().done;
      idle_events_.push_back(last);
      issued_.pop_front();
    }
    if (last == nullptr) return {};
    return cuda_status(cudaStreamWaitEvent(compute_, last, 0), "waiting for an event");
  }
  Status wait_all() override {
    if (!issued_.empty()) TRY(wait(issued_.back().mark));
    while (!messages_.empty()) TRY(join(messages_.begin()));
    return {};
  }

  // Nobody else takes part, so this need not leave the compute stream.
  Status copy(const View& from, const View& to) override {
    if (from.data == to.data || from.is_empty()) return {};
    return cuda_status(
        cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDeviceToDevice, compute_),
        "copying");
  }

 private:
  struct Collective {
    Mark mark;
    cudaEvent_t done;
  };
  struct Message {
    Mark mark;
    Lane lane;
  };

  Status join(std::deque<Message>::iterator it) {
    Lane lane = std::move(it->lane);
    messages_.erase(it);
    Status joined = put_after(compute_, lane.cuda, lane.event);
    idle_lanes_.push_back(std::move(lane));
    return joined;
  }

  cudaStream_t compute_;
  Kind kind_ = Kind::kCollective;  // of what has begun
  Lane collectives_;
  std::deque<Collective> issued_;  // not waited for, by mark
  std::deque<Message> messages_;
  std::vector<cudaEvent_t> idle_events_;
  std::vector<Lane> idle_lanes_;
};

}  // namespace

Result<std::unique_ptr<Flow>> make_cuda_flow(void* compute_stream) {
  TRY_ASSIGN(Lane collectives, Lane::make());
  return std::unique_ptr<Flow>(std::make_unique<CudaFlow>(static_cast<cudaStream_t>(compute_stream),
                                                          std::move(collectives)));
}

bool is_device_memory(const void* data) {
  cudaPointerAttributes of = {};
  if (cudaPointerGetAttributes(&of, data) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  return of.type == cudaMemoryTypeDevice;
}

}  // namespace tr::par
