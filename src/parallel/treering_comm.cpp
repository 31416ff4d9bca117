// Comm over the library itself. Streams and waiting: flow.hpp.
#include <utility>
#include <vector>

#include "treering/parallel/comm.hpp"
#include "treering/treering.hpp"

#include "parallel/flow.hpp"
#include "parallel/try.hpp"

namespace tr::par {
namespace {

class TreeringComm final : public Comm {
 public:
  static Result<std::unique_ptr<TreeringComm>> make(Communicator comm) {
    TRY_ASSIGN(std::unique_ptr<Flow> flow, make_host_flow());
    return std::unique_ptr<TreeringComm>(new TreeringComm(std::move(comm), std::move(flow)));
  }

  const char* backend() const override { return "treering"; }
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }

  Status wait(Mark mark) override {
    TRY(in_world(host_->wait(mark)));
    if (device_ != nullptr) TRY(in_world(device_->wait(mark)));
    return in_world(failure());
  }
  Status wait_all() override {
    TRY(in_world(host_->wait_all()));
    if (device_ != nullptr) TRY(in_world(device_->wait_all()));
    return in_world(failure());
  }

  Status set_rank_order(bool on) override {
    return size() == 1 ? Status() : comm_.set_option(TR_OPT_ORDERED, on);
  }
  // On a GPU the messages of a communicator take turns, and a receive that was issued early would
  // keep back the sends that it depends on. So edges of a ring are put on communicators on which a
  // rank either sends or receives: from even ranks to odd ones, from odd to even, and the one that
  // an odd number of ranks leaves over.
  Status open_messages() override {
    if (!is_on_device_ || size() == 1) return {};
    const int more = size() > 2 && size() % 2 == 1 ? 2 : 1;
    while (static_cast<int>(message_comms_.size()) < more) {
      TRY_ASSIGN(Communicator made, comm_.split(0, rank()));
      message_comms_.push_back(std::move(made));
    }
    return {};
  }
  void set_compute_stream(void* stream) override {
    is_on_device_ = true;
    compute_stream_ = stream;
    device_.reset();
  }

  // Not of device memory: a rank's Compute may free it before its peers have let it go.
  Result<Registration> register_memory(const View& memory) override {
    if (size() == 1 || memory.bytes() < kRegistrableBytes || is_on_device(memory.data)) {
      return Registration();
    }
    tr_window_t window = nullptr;
    TRY(Status::of(tr_comm_register(comm_.get(), memory.data, memory.bytes(), &window)));
    return Registration(window, [comm = comm_.get()](const void* held) {
      // The communicator's death has released it, if that came first.
      (void)tr_comm_deregister(comm, static_cast<tr_window_t>(const_cast<void*>(held)));
    });
  }

 protected:
  Status do_all_reduce(const View& send, const View& recv, Reduction op) override {
    const tr_op_t how = op == Reduction::kSum ? TR_SUM : TR_MAX;
    return enqueue(Flow::Kind::kCollective, send, [&](tr_stream_t on) {
      return tr_all_reduce(send.data, recv.data, count(send), wire_type(send.type), how,
                           comm_.get(), on);
    });
  }
  Status do_reduce_scatter(const View& send, const View& recv) override {
    return enqueue(Flow::Kind::kCollective, send, [&](tr_stream_t on) {
      return tr_reduce_scatter(send.data, recv.data, count(recv), wire_type(send.type), TR_SUM,
                               comm_.get(), on);
    });
  }
  Status do_all_gather(const View& send, const View& recv) override {
    return enqueue(Flow::Kind::kCollective, recv, [&](tr_stream_t on) {
      return tr_all_gather(send.data, recv.data, count(send), wire_type(send.type), comm_.get(),
                           on);
    });
  }
  Status do_all_to_all(const View& send, const View& recv) override {
    return enqueue(Flow::Kind::kCollective, send, [&](tr_stream_t on) {
      return tr_all_to_all(send.data, recv.data, count(send) / size(), wire_type(send.type),
                           comm_.get(), on);
    });
  }
  Status do_broadcast(const View& data, int root) override {
    return enqueue(Flow::Kind::kCollective, data, [&](tr_stream_t on) {
      return tr_broadcast(data.data, data.data, count(data), wire_type(data.type), root,
                          comm_.get(), on);
    });
  }
  Status do_send(const View& data, int peer) override {
    return enqueue(Flow::Kind::kMessage, data, [&](tr_stream_t on) {
      return tr_send(data.data, count(data), wire_type(data.type), peer,
                     message_comm(data.data, rank(), peer), on);
    });
  }
  Status do_recv(const View& data, int peer) override {
    return enqueue(Flow::Kind::kMessage, data, [&](tr_stream_t on) {
      return tr_recv(data.data, count(data), wire_type(data.type), peer,
                     message_comm(data.data, peer, rank()), on);
    });
  }
  Status do_barrier() override { return in_world(comm_.barrier()); }
  Status do_copy(const View& from, const View& to) override {
    TRY_ASSIGN(Flow * flow, flow_for(from.data));
    return flow->copy(from, to);
  }
  // A group of one needs no communicator: the base answers for it.
  Result<std::unique_ptr<Comm>> do_split(int color, int new_rank, int new_size) override {
    Communicator part;
    if (size() > 1) {
      TRY_ASSIGN(part, comm_.split(new_size > 1 ? color : TR_SPLIT_NONE, new_rank));
    }
    TRY_ASSIGN(std::unique_ptr<TreeringComm> made, make(std::move(part)));
    made->is_on_device_ = is_on_device_;
    made->compute_stream_ = compute_stream_;
    return std::unique_ptr<Comm>(std::move(made));
  }

 private:
  TreeringComm(Communicator comm, std::unique_ptr<Flow> flow)
      : comm_(std::move(comm)), host_(std::move(flow)) {}

  static std::uint64_t count(const View& view) {
    return static_cast<std::uint64_t>(view.elements());
  }
  bool is_on_device(const void* data) const { return is_on_device_ && is_device_memory(data); }
  tr_comm_t message_comm(const void* data, int from, int to) const {
    if (message_comms_.empty() || !is_on_device(data)) return comm_.get();
    const std::size_t number = from % 2 != to % 2 ? static_cast<std::size_t>(from % 2) : 2;
    return number == 0 || number > message_comms_.size() ? comm_.get()
                                                         : message_comms_[number - 1].get();
  }
  Result<Flow*> flow_for(const void* data) {
    if (!is_on_device(data)) return host_.get();
    if (device_ == nullptr) {
      TRY_ASSIGN(device_, make_cuda_flow(compute_stream_));
    }
    return device_.get();
  }

  // Call answers what tr_* does.
  template <class Call>
  Status enqueue(Flow::Kind kind, const View& data, const Call& call) {
    TRY_ASSIGN(Flow * flow, flow_for(data.data));
    TRY_ASSIGN(const tr_stream_t on, flow->begin(kind));
    TRY(in_world(Status::of(call(on))));
    return in_world(flow->end(last()));
  }
  Status failure() {
    if (size() == 1) return {};
    for (const Communicator& one : message_comms_) TRY(one.async_error());
    return comm_.async_error();
  }

  Communicator comm_;                        // destroyed last: streams wait for their operations
  std::vector<Communicator> message_comms_;  // besides comm_, if messages have been opened
  std::unique_ptr<Flow> host_, device_;
  bool is_on_device_ = false;  // a compute stream was given
  void* compute_stream_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Comm>> make_treering_world() {
  TRY_ASSIGN(Communicator world, Communicator::from_env());
  TRY_ASSIGN(std::unique_ptr<TreeringComm> comm, TreeringComm::make(std::move(world)));
  return std::unique_ptr<Comm>(std::move(comm));
}

Result<std::vector<std::unique_ptr<Comm>>> make_threads_comms(int size) {
  TRY_ASSIGN(std::vector<Communicator> made, Communicator::in_process(size));
  std::vector<std::unique_ptr<Comm>> comms;
  for (Communicator& one : made) {
    TRY_ASSIGN(std::unique_ptr<TreeringComm> comm, TreeringComm::make(std::move(one)));
    comms.push_back(std::move(comm));
  }
  return comms;
}

}  // namespace tr::par
