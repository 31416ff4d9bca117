#include <algorithm>
#include <list>

#include "treering/parallel/simulated.hpp"

#include "parallel/wrapped_comm.hpp"

namespace tr::par {
namespace {

// Beside each operation of the inner group goes a small one that carries times: with a message,
// when it arrives; with a collective, when the last rank has come.
class SimulatedComm final : public WrappedComm {
 public:
  SimulatedComm(std::unique_ptr<Comm> inner, std::vector<int> members, std::uint64_t key,
                SimulatedClock& clock, const SimulatedLinks& links, Trace* trace)
      : WrappedComm(std::move(inner), std::move(members), key),
        clock_(clock),
        links_(links),
        trace_(trace) {}

  // Times travel from and to open_, which must not go before they have arrived.
  ~SimulatedComm() override { (void)inner().wait_all(); }

  Status wait(Mark mark) override {
    const auto waited = std::find_if(open_.begin(), open_.end(),
                                     [&](const Open& one) { return one.call.mark == mark; });
    if (waited == open_.end()) return {};
    if (is_message(waited->call.operation)) return end_message(waited);
    // Collectives one after another, so that each finds when the one before it ended.
    for (auto it = open_.begin(); it != open_.end() && it->call.mark <= mark;) {
      if (is_message(it->call.operation)) {
        ++it;
        continue;
      }
      TRY(end_collective(*it));
      it = open_.erase(it);
    }
    stand_still_until(collectives_end_us_, "collective");
    return {};
  }
  Status wait_all() override {
    while (!open_.empty()) TRY(wait(open_.front().call.mark));
    return {};
  }

 private:
  struct Open {
    Call call;
    Mark times = 0;
    double us = 0.0;  // what travels: a message's arrival, or the last rank's coming
  };

  Status before(Call& call) override {
    open_.push_back({call, 0, clock_.now_us()});
    Open& open = open_.back();
    open.call.issued_us = clock_.now_us();
    const View times = view_of(&open.us, 1, 1, DType::kFloat64);
    Result<Mark> issued = Mark{0};
    if (call.operation == Operation::kSend) {
      const double begin = std::max(clock_.now_us(), port_free_us_);
      port_free_us_ = begin + bytes_us(call);
      open.us = port_free_us_ + links_.latency_us;
      open.call.issued_us = begin;
      issued = inner().send(times, call.other);
    } else if (call.operation == Operation::kRecv) {
      issued = inner().recv(times, call.other);
    } else {
      issued = inner().all_reduce(times, times, Reduction::kMax);
    }
    if (!issued) return issued.error();
    open.times = issued.value();
    return {};
  }
  void after(Call call) override { open_.back().call.inner = call.inner; }
  std::unique_ptr<Comm> wrap(std::unique_ptr<Comm> part, std::vector<int> members,
                             std::uint64_t key) override {
    return std::make_unique<SimulatedComm>(std::move(part), std::move(members), key, clock_, links_,
                                           trace_);
  }

  Status end_message(std::list<Open>::iterator it) {
    TRY(inner().wait(it->times));
    TRY(inner().wait(it->call.inner));
    const Call call = it->call;
    const double arrival = it->us;
    open_.erase(it);
    const bool is_send = call.operation == Operation::kSend;
    const double begin = is_send ? call.issued_us : arrival - bytes_us(call) - links_.latency_us;
    record(call, begin, arrival);
    stand_still_until(arrival, name_of(call.operation));
    return {};
  }

  Status end_collective(const Open& open) {
    TRY(inner().wait(open.times));
    TRY(inner().wait(open.call.inner));
    const double begin = std::max(open.us, collectives_end_us_);
    collectives_end_us_ = begin + bytes_us(open.call) + links_.latency_us;
    record(open.call, begin, collectives_end_us_);
    return {};
  }

  // How long the bytes of the rank that sends most take.
  double bytes_us(const Call& call) const {
    const bool is_p2p = is_message(call.operation);
    std::int64_t bytes = 0;
    for (int rank = 0; rank < (is_p2p ? 1 : size()); ++rank) {
      const Operation counted = is_p2p ? Operation::kSend : call.operation;
      bytes = std::max(
          bytes, ring_traffic(counted, call.elements, call.type, rank, size(), call.other).bytes);
    }
    bool is_inside = true;
    const int node = node_of(is_p2p ? rank() : 0);
    for (int rank = 0; rank < size(); ++rank) {
      if (!is_p2p || rank == call.other) is_inside &= node_of(rank) == node;
    }
    return static_cast<double>(bytes) /
           (is_inside ? links_.intra_bytes_per_us : links_.inter_bytes_per_us);
  }
  int node_of(int rank) const {
    return members()[static_cast<std::size_t>(rank)] / links_.ranks_per_node;
  }

  void record(const Call& call, double begin, double end) {
    if (trace_ == nullptr) return;
    trace_->add(interval_of(call, begin, end));
  }
  void stand_still_until(double us, const char* why) {
    const double begin = clock_.now_us();
    if (clock_.advance_to(us) > 0.0 && trace_ != nullptr) {
      trace_->add({Row::kWait, why, begin, clock_.now_us()});
    }
  }

  SimulatedClock& clock_;
  SimulatedLinks links_;
  Trace* trace_;
  std::list<Open> open_;  // issued, not waited for; a list, since messages are sent from it
  double port_free_us_ = 0.0, collectives_end_us_ = 0.0;
};

}  // namespace

std::unique_ptr<Comm> simulate_links(std::unique_ptr<Comm> world, SimulatedClock& clock,
                                     const SimulatedLinks& links, Trace* trace) {
  std::vector<int> members = all_ranks(world->size());
  return std::make_unique<SimulatedComm>(std::move(world), std::move(members), 0, clock, links,
                                         trace);
}

}  // namespace tr::par
