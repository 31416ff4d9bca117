// Comm over the library itself.
//
// Collectives share one stream, where those that use the same memory follow each other and others
// overlap. Each message has a stream of its own, since who waits for a receive must not wait for a
// send, which ends when the peer comes to it. Waiting for the newest collective drives the
// library's progress from here; for an older one there is its event.
#include <deque>
#include <utility>
#include <vector>

#include "treering/parallel/comm.hpp"
#include "treering/treering.hpp"

#include "parallel/try.hpp"

namespace tr::par {
namespace {

class TreeringComm final : public Comm {
 public:
  static Result<std::unique_ptr<Comm>> make(Communicator comm) {
    TRY_ASSIGN(Stream stream, Stream::create());
    return std::unique_ptr<Comm>(new TreeringComm(std::move(comm), std::move(stream)));
  }

  const char* backend() const override { return "treering"; }
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }

  Status wait(Mark mark) override {
    for (auto it = messages_.begin(); it != messages_.end(); ++it) {
      if (it->mark == mark) return end_message(it);
    }
    if (collectives_.empty() || mark < collectives_.front().mark) return {};
    if (mark >= collectives_.back().mark) return end_collectives();
    return end_collectives_until(mark);
  }
  Status wait_all() override {
    Status first = end_collectives();
    while (!messages_.empty()) {
      Status ended = end_message(messages_.begin());
      if (first.ok()) first = std::move(ended);
    }
    return first;
  }

  Status set_rank_order(bool on) override {
    return size() == 1 ? Status() : comm_.set_option(TR_OPT_ORDERED, on);
  }

  Result<Registration> register_memory(const View& memory) override {
    if (size() == 1 || memory.bytes() < kRegistrableBytes) return Registration();
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
    return enqueue(tr_all_reduce(send.data, recv.data, count(send), wire_type(send.type), how,
                                 comm_.get(), stream_.get()));
  }
  Status do_reduce_scatter(const View& send, const View& recv) override {
    return enqueue(tr_reduce_scatter(send.data, recv.data, count(recv), wire_type(send.type),
                                     TR_SUM, comm_.get(), stream_.get()));
  }
  Status do_all_gather(const View& send, const View& recv) override {
    return enqueue(tr_all_gather(send.data, recv.data, count(send), wire_type(send.type),
                                 comm_.get(), stream_.get()));
  }
  Status do_all_to_all(const View& send, const View& recv) override {
    return enqueue(tr_all_to_all(send.data, recv.data, count(send) / size(), wire_type(send.type),
                                 comm_.get(), stream_.get()));
  }
  Status do_broadcast(const View& data, int root) override {
    return enqueue(tr_broadcast(data.data, data.data, count(data), wire_type(data.type), root,
                                comm_.get(), stream_.get()));
  }
  Status do_send(const View& data, int peer) override {
    return message([&](tr_stream_t on) {
      return tr_send(data.data, count(data), wire_type(data.type), peer, comm_.get(), on);
    });
  }
  Status do_recv(const View& data, int peer) override {
    return message([&](tr_stream_t on) {
      return tr_recv(data.data, count(data), wire_type(data.type), peer, comm_.get(), on);
    });
  }
  Status do_barrier() override { return comm_.barrier(); }
  // A group of one needs no communicator: the base answers for it.
  Result<std::unique_ptr<Comm>> do_split(int color, int new_rank, int new_size) override {
    Communicator part;
    if (size() > 1) {
      TRY_ASSIGN(part, comm_.split(new_size > 1 ? color : TR_SPLIT_NONE, new_rank));
    }
    return make(std::move(part));
  }

 private:
  struct Collective {
    Mark mark;
    Event done;
  };
  struct Message {
    Mark mark;
    Stream stream;
  };

  TreeringComm(Communicator comm, Stream stream)
      : comm_(std::move(comm)), stream_(std::move(stream)) {}

  static std::uint64_t count(const View& view) {
    return static_cast<std::uint64_t>(view.elements());
  }

  // What tr_* answered for a collective on stream_.
  Status enqueue(tr_result_t answered) {
    TRY(Status::of(answered));
    if (idle_events_.empty()) {
      TRY_ASSIGN(Event made, Event::create());
      idle_events_.push_back(std::move(made));
    }
    collectives_.push_back({last(), std::move(idle_events_.back())});
    idle_events_.pop_back();
    return collectives_.back().done.record(stream_);
  }

  template <class Call>
  Status message(const Call& call) {
    if (idle_streams_.empty()) {
      TRY_ASSIGN(Stream made, Stream::create());
      idle_streams_.push_back(std::move(made));
    }
    TRY(Status::of(call(idle_streams_.back().get())));
    messages_.push_back({last(), std::move(idle_streams_.back())});
    idle_streams_.pop_back();
    return {};
  }

  Status end_message(std::deque<Message>::iterator it) {
    Status ended = it->stream.synchronize();
    idle_streams_.push_back(std::move(it->stream));
    messages_.erase(it);
    return ended;
  }
  Status end_collectives() {
    Status ended = stream_.synchronize();
    while (!collectives_.empty()) retire();
    return ended;
  }
  Status end_collectives_until(Mark mark) {
    while (collectives_.front().mark < mark) retire();
    TRY(collectives_.front().done.synchronize());
    retire();
    return comm_.async_error();
  }
  void retire() {
    idle_events_.push_back(std::move(collectives_.front().done));
    collectives_.pop_front();
  }

  Communicator comm_;                   // destroyed last: streams wait for their operations
  Stream stream_;                       // of the collectives
  std::deque<Collective> collectives_;  // issued, not waited for, by mark
  std::deque<Message> messages_;
  std::vector<Event> idle_events_;
  std::vector<Stream> idle_streams_;
};

}  // namespace

Result<std::unique_ptr<Comm>> make_treering_world() {
  TRY_ASSIGN(Communicator world, Communicator::from_env());
  return TreeringComm::make(std::move(world));
}

Result<std::vector<std::unique_ptr<Comm>>> make_threads_comms(int size) {
  TRY_ASSIGN(std::vector<Communicator> made, Communicator::in_process(size));
  std::vector<std::unique_ptr<Comm>> comms;
  for (Communicator& one : made) {
    TRY_ASSIGN(std::unique_ptr<Comm> comm, TreeringComm::make(std::move(one)));
    comms.push_back(std::move(comm));
  }
  return comms;
}

}  // namespace tr::par
