// NCCL as a backend of the parallelism layer, for comparison: device memory only.
//
// Linked whole, it registers itself as "nccl". A rank's device is the thread's current one when its
// world is made. Ranks meet through Treering. Operations are ordered with the compute stream by
// events, and nothing blocks the host but barrier. Messages are collected and issued as one NCCL
// group at the next wait or collective: only in a group do NCCL's sends and receives progress
// together.
#include <chrono>
#include <cuda_runtime.h>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "treering/parallel/comm.hpp"
#include "treering/treering.hpp"

#include "peers/comm_deadline.hpp"
#include "peers/nccl_api_cuda.hpp"

namespace treering::peers {
namespace {

using perf::kNcclSuccess;
using perf::Nccl;
using tr::Communicator;
using tr::Error;
using tr::Result;
using tr::Status;
using tr::par::Comm;
using tr::par::DType;
using tr::par::Reduction;
using tr::par::View;

constexpr int kNcclSum = 0, kNcclMax = 2, kNcclInt8 = 0;

Status status_of(std::optional<std::string> failure) {
  if (!failure) return {};
  return Error{TR_SYSTEM_ERROR, "nccl: " + *failure};
}
Status status_of(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return {};
  return Error{TR_SYSTEM_ERROR, std::string("nccl: ") + call + ": " + cudaGetErrorString(code)};
}
int nccl_type(DType type) {
  constexpr int kNumbers[] = {8, 7, 9, 6};  // fp64, fp32, bf16, fp16
  return kNumbers[static_cast<int>(type)];
}

class NcclGroup final : public Comm {
 public:
  static Result<std::unique_ptr<Comm>> make(const Nccl& nccl, Communicator meeting,
                                            cudaStream_t compute) {
    std::unique_ptr<NcclGroup> made(new NcclGroup(nccl, std::move(meeting), compute));
    if (Status s = made->start(); !s) return s.error();
    return std::unique_ptr<Comm>(std::move(made));
  }
  ~NcclGroup() override {
    (void)drain();
    if (comm_ != nullptr) (void)nccl_.destroy(comm_);
    for (const Issued& one : issued_) (void)cudaEventDestroy(one.done);
    for (cudaEvent_t event : idle_events_) (void)cudaEventDestroy(event);
    if (token_ != nullptr) (void)cudaFree(token_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  const char* backend() const override { return "nccl"; }
  int rank() const override { return meeting_.rank(); }
  int size() const override { return meeting_.size(); }
  void set_compute_stream(void* stream) override { compute_ = static_cast<cudaStream_t>(stream); }

  Status wait(Mark mark) override {
    if (Status s = send_messages(); !s) return s;
    while (!issued_.empty() && issued_.front().first_mark <= mark) {
      Status waited =
          status_of(cudaStreamWaitEvent(compute_, issued_.front().done, 0), "cudaStreamWaitEvent");
      idle_events_.push_back(issued_.front().done);
      issued_.pop_front();
      if (!waited) return waited;
    }
    int code = kNcclSuccess;
    if (comm_ == nullptr) return {};
    Status asked =
        status_of(nccl_.explain("ncclCommGetAsyncError", nccl_.async_error(comm_, &code)));
    return asked ? status_of(nccl_.explain("the communicator", code)) : asked;
  }
  Status wait_all() override { return wait(last()); }

  Status set_rank_order(bool on) override {
    if (!on) return {};
    return Error{TR_UNSUPPORTED,
                 "nccl: NCCL promises no order of its sums: use the treering backend"};
  }

 protected:
  Status do_all_reduce(const View& send, const View& recv, Reduction op) override {
    return issue("ncclAllReduce", {send, recv}, [&] {
      return nccl_.all_reduce(send.data, recv.data, count(send), nccl_type(send.type),
                              op == Reduction::kSum ? kNcclSum : kNcclMax, comm_, stream_);
    });
  }
  Status do_reduce_scatter(const View& send, const View& recv) override {
    return issue("ncclReduceScatter", {send, recv}, [&] {
      return nccl_.reduce_scatter(send.data, recv.data, count(recv), nccl_type(send.type), kNcclSum,
                                  comm_, stream_);
    });
  }
  Status do_all_gather(const View& send, const View& recv) override {
    return issue("ncclAllGather", {send, recv}, [&] {
      return nccl_.all_gather(send.data, recv.data, count(send), nccl_type(send.type), comm_,
                              stream_);
    });
  }
  Status do_all_to_all(const View& send, const View& recv) override {
    return issue("ncclGroupEnd", {send, recv}, [&] {
      const std::size_t part = count(send) / static_cast<std::size_t>(size());
      const int type = nccl_type(send.type);
      return grouped([&] {
        int code = kNcclSuccess;
        for (int q = 0; q < size() && code == kNcclSuccess; ++q) {
          const std::size_t at = static_cast<std::size_t>(q) * part * size_of(send.type);
          code = nccl_.send(static_cast<char*>(send.data) + at, part, type, q, comm_, stream_);
          if (code != kNcclSuccess) break;
          code = nccl_.recv(static_cast<char*>(recv.data) + at, part, type, q, comm_, stream_);
        }
        return code;
      });
    });
  }
  Status do_broadcast(const View& data, int root) override {
    return issue("ncclBroadcast", {data}, [&] {
      return nccl_.broadcast(data.data, data.data, count(data), nccl_type(data.type), root, comm_,
                             stream_);
    });
  }
  Status do_send(const View& data, int peer) override { return collect(data, peer, true); }
  Status do_recv(const View& data, int peer) override { return collect(data, peer, false); }
  Status do_barrier() override {
    Status issued = issue("ncclAllReduce", {}, [&] {
      return nccl_.all_reduce(token_, token_, 1, kNcclInt8, kNcclSum, comm_, stream_);
    });
    return issued ? drain() : issued;
  }
  Status do_copy(const View& from, const View& to) override {
    if (from.data == to.data) return {};
    return status_of(
        cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDeviceToDevice, compute_),
        "cudaMemcpyAsync");
  }
  Result<std::unique_ptr<Comm>> do_split(int color, int new_rank, int) override {
    Result<Communicator> part = meeting_.split(color, new_rank);
    if (!part) return part.error();
    return make(nccl_, std::move(part).value(), compute_);
  }

 private:
  struct Message {
    View data;
    int peer;
    bool is_send;
  };
  struct Issued {
    Mark first_mark;  // of the operations behind `done`
    cudaEvent_t done;
  };

  NcclGroup(const Nccl& nccl, Communicator meeting, cudaStream_t compute)
      : nccl_(nccl), meeting_(std::move(meeting)), compute_(compute) {}

  Status start() {
    if (size() == 1) return {};
    perf::NcclId id = {};
    Status made =
        rank() == 0 ? status_of(nccl_.explain("ncclGetUniqueId", nccl_.get_id(&id))) : Status();
    std::vector<std::uint8_t> bytes(id.bytes, id.bytes + sizeof id.bytes);
    if (Status s = meeting_.broadcast(bytes, 0); !s) return s;
    if (!made) return made;
    std::copy(bytes.begin(), bytes.end(), id.bytes);
    if (Status s = status_of(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                             "cudaStreamCreateWithFlags");
        !s) {
      return s;
    }
    if (Status s = status_of(cudaMalloc(&token_, 1), "cudaMalloc"); !s) return s;
    return status_of(
        nccl_.explain("ncclCommInitRank", nccl_.init_rank(&comm_, size(), id, rank())));
  }

  static std::size_t count(const View& view) { return static_cast<std::size_t>(view.elements()); }

  static Status check_device(const View& view) {
    if (view.is_empty()) return {};
    cudaPointerAttributes found = {};
    const cudaError_t code = cudaPointerGetAttributes(&found, view.data);
    if (code != cudaSuccess) (void)cudaGetLastError();
    const bool is_device = code == cudaSuccess && (found.type == cudaMemoryTypeDevice ||
                                                   found.type == cudaMemoryTypeManaged);
    if (is_device) return {};
    return Error{TR_UNSUPPORTED,
                 "nccl: NCCL moves device memory, and this is host memory: use a CUDA device to "
                 "compute on, or the treering, mpi or gloo backend"};
  }

  template <class Body>
  int grouped(const Body& body) {
    int code = nccl_.group_start();
    if (code == kNcclSuccess) code = body();
    const int ended = nccl_.group_end();
    return code != kNcclSuccess ? code : ended;
  }

  Status collect(const View& data, int peer, bool is_send) {
    if (Status s = check_device(data); !s) return s;
    if (messages_.empty()) first_message_ = last();
    messages_.push_back({data, peer, is_send});
    return {};
  }

  Status send_messages() {
    if (messages_.empty()) return {};
    const std::vector<Message> messages = std::exchange(messages_, {});
    return enqueue("ncclGroupEnd", first_message_, [&] {
      return grouped([&] {
        int code = kNcclSuccess;
        for (const Message& m : messages) {
          const int type = nccl_type(m.data.type);
          code = m.is_send ? nccl_.send(m.data.data, count(m.data), type, m.peer, comm_, stream_)
                           : nccl_.recv(m.data.data, count(m.data), type, m.peer, comm_, stream_);
          if (code != kNcclSuccess) break;
        }
        return code;
      });
    });
  }

  template <class Call>
  Status issue(const char* name, std::initializer_list<View> views, const Call& call) {
    for (const View& view : views) {
      if (Status s = check_device(view); !s) return s;
    }
    if (Status s = send_messages(); !s) return s;
    return enqueue(name, last(), call);
  }

  // After what is on the compute stream now.
  template <class Call>
  Status enqueue(const char* name, Mark first_mark, const Call& call) {
    cudaEvent_t event = nullptr;
    if (idle_events_.empty()) {
      if (Status s = status_of(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                               "cudaEventCreateWithFlags");
          !s) {
        return s;
      }
      idle_events_.push_back(event);
    }
    event = idle_events_.back();
    if (Status s = status_of(cudaEventRecord(event, compute_), "cudaEventRecord"); !s) return s;
    if (Status s = status_of(cudaStreamWaitEvent(stream_, event, 0), "cudaStreamWaitEvent"); !s) {
      return s;
    }
    if (Status s = status_of(nccl_.explain(name, call())); !s) return s;
    if (Status s = status_of(cudaEventRecord(event, stream_), "cudaEventRecord"); !s) return s;
    idle_events_.pop_back();
    issued_.push_back({first_mark, event});
    return {};
  }

  // Until the device has done all of it.
  Status drain() {
    if (Status s = send_messages(); !s) return s;
    if (stream_ == nullptr) return {};
    const auto deadline = std::chrono::steady_clock::now() + comm_deadline();
    for (;;) {
      const cudaError_t code = cudaStreamQuery(stream_);
      if (code != cudaErrorNotReady) return status_of(code, "cudaStreamQuery");
      if (std::chrono::steady_clock::now() > deadline) {
        return Error{TR_TIMEOUT, "nccl: operations did not end within " +
                                     std::to_string(comm_deadline().count()) + " ms"};
      }
      std::this_thread::yield();
    }
  }

  const Nccl& nccl_;
  Communicator meeting_;  // the same ranks
  cudaStream_t compute_;
  perf::NcclComm comm_ = nullptr;  // of more than one rank
  cudaStream_t stream_ = nullptr;
  void* token_ = nullptr;  // of barriers
  std::vector<Message> messages_;
  Mark first_message_ = 0;
  std::deque<Issued> issued_;  // by mark
  std::vector<cudaEvent_t> idle_events_;
};

Result<std::unique_ptr<Comm>> make_world() {
  static Nccl nccl;
  if (nccl.version == 0) {
    if (auto failure = perf::open_nccl(&nccl)) {
      return Error{TR_UNSUPPORTED, *failure + " (pip install nvidia-nccl-cu12, or TREERING_NCCL)"};
    }
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    return Error{TR_UNSUPPORTED, "nccl: there is no CUDA device"};
  }
  Result<Communicator> world = Communicator::from_env();
  if (!world) return world.error();
  return NcclGroup::make(nccl, std::move(world).value(), nullptr);
}

[[maybe_unused]] const bool kRegistered = (tr::par::register_backend("nccl", make_world), true);

}  // namespace
}  // namespace treering::peers
