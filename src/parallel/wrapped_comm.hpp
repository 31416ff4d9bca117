// A Comm that has another do the work, and looks on: the base of traces and simulated links.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "treering/parallel/comm.hpp"
#include "treering/parallel/trace.hpp"

#include "parallel/try.hpp"

namespace tr::par {

std::vector<int> all_ranks(int size);  // 0, 1, ...

class WrappedComm : public Comm {
 public:
  // members: the world's ranks that are in the group. key: of this group, the same on its ranks.
  WrappedComm(std::unique_ptr<Comm> inner, std::vector<int> members, std::uint64_t key)
      : inner_(std::move(inner)), members_(std::move(members)), key_(key) {}

  const char* backend() const override { return inner_->backend(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool is_dry() const override { return inner_->is_dry(); }
  Result<Registration> register_memory(const View& memory) override {
    return inner_->register_memory(memory);
  }
  Status open_messages() override { return inner_->open_messages(); }
  Status set_rank_order(bool on) override { return inner_->set_rank_order(on); }
  void set_compute_stream(void* stream) override { inner_->set_compute_stream(stream); }
  Result<std::unique_ptr<Comm>> split(std::span<const int> colors) override;

 protected:
  struct Call {
    Operation operation = Operation::kBarrier;
    std::int64_t elements = 0;  // of the whole vector
    DType type = DType::kFloat32;
    int other = 0;   // the peer, or the root
    Mark mark = 0;   // ours
    Mark inner = 0;  // of the call itself
    double issued_us = 0.0;
    std::uint64_t message = 0;
  };
  static bool is_message(Operation operation) {
    return operation == Operation::kSend || operation == Operation::kRecv;
  }

  Interval interval_of(const Call& call, double begin_us, double end_us) const {
    return {
        row_of(name()),
        name_of(call.operation),
        begin_us,
        end_us,
        call.message,
        call.operation == Operation::kSend,
        call.elements * static_cast<std::int64_t>(size_of(call.type)),
        ring_traffic(call.operation, call.elements, call.type, rank(), size(), call.other).bytes};
  }

  // Around each call that goes to `inner`.
  virtual Status before(Call& call) = 0;
  virtual void after(Call call) = 0;
  virtual std::unique_ptr<Comm> wrap(std::unique_ptr<Comm> part, std::vector<int> members,
                                     std::uint64_t key) = 0;

  Comm& inner() { return *inner_; }
  const std::vector<int>& members() const { return members_; }

 private:
  Status do_all_reduce(const View& send, const View& recv, Reduction op) override {
    return call(Operation::kAllReduce, send, 0, [&] { return inner_->all_reduce(send, recv, op); });
  }
  Status do_reduce_scatter(const View& send, const View& recv) override {
    return call(Operation::kReduceScatter, send, 0,
                [&] { return inner_->reduce_scatter(send, recv); });
  }
  Status do_all_gather(const View& send, const View& recv) override {
    return call(Operation::kAllGather, recv, 0, [&] { return inner_->all_gather(send, recv); });
  }
  Status do_all_to_all(const View& send, const View& recv) override {
    return call(Operation::kAllToAll, send, 0, [&] { return inner_->all_to_all(send, recv); });
  }
  Status do_broadcast(const View& data, int root) override {
    return call(Operation::kBroadcast, data, root, [&] { return inner_->broadcast(data, root); });
  }
  Status do_send(const View& data, int peer) override {
    return call(Operation::kSend, data, peer, [&] { return inner_->send(data, peer); });
  }
  Status do_recv(const View& data, int peer) override {
    return call(Operation::kRecv, data, peer, [&] { return inner_->recv(data, peer); });
  }
  Status do_barrier() override { return inner_->barrier(); }
  // In a group of one every collective is a copy, and the inner group knows how.
  Status do_copy(const View& from, const View& to) override {
    TRY(inner_->all_reduce(from, to));
    return {};
  }
  Result<std::unique_ptr<Comm>> do_split(int, int, int) override {
    return Error{TR_INTERNAL_ERROR, "split is overridden"};
  }

  template <class Issue>
  Status call(Operation operation, const View& whole, int other, const Issue& issue) {
    Call made{operation, whole.elements(), whole.type, other, last()};
    if (is_message(operation)) made.message = next_message(operation, other);
    TRY(before(made));
    TRY_ASSIGN(made.inner, issue());
    after(made);
    return {};
  }
  // A number that both ends find: the k-th message from one rank to another in this group.
  std::uint64_t next_message(Operation operation, int peer);

  std::unique_ptr<Comm> inner_;
  std::vector<int> members_;
  std::uint64_t key_;
  std::uint64_t splits_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // messages so far, by peer
};

}  // namespace tr::par
