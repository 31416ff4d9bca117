#include <algorithm>

#include "treering/parallel/trace.hpp"

#include "parallel/wrapped_comm.hpp"

namespace tr::par {
namespace {

class TracedComm final : public WrappedComm {
 public:
  TracedComm(std::unique_ptr<Comm> inner, std::vector<int> members, std::uint64_t key, Trace& trace)
      : WrappedComm(std::move(inner), std::move(members), key), trace_(trace) {}

  Status wait(Mark mark) override {
    const auto waited = std::find_if(open_.begin(), open_.end(),
                                     [&](const Call& call) { return call.mark == mark; });
    if (waited == open_.end()) return {};
    const Call call = *waited;
    const double begin = trace_.now_us();
    const Status done = inner().wait(call.inner);
    const double end = trace_.now_us();
    stood_still(name_of(call.operation), begin, end);
    // Collectives end in order; a message for itself.
    std::erase_if(open_, [&](const Call& other) {
      const bool is_over =
          other.mark == mark ||
          (!is_message(call.operation) && !is_message(other.operation) && other.mark < mark);
      if (is_over) record(other, end);
      return is_over;
    });
    return done;
  }
  Status wait_all() override {
    const double begin = trace_.now_us();
    const Status done = inner().wait_all();
    const double end = trace_.now_us();
    stood_still("wait_all", begin, end);
    for (const Call& call : open_) record(call, end);
    open_.clear();
    return done;
  }

 private:
  Status before(Call& call) override {
    call.issued_us = trace_.now_us();
    return {};
  }
  void after(Call call) override { open_.push_back(call); }
  std::unique_ptr<Comm> wrap(std::unique_ptr<Comm> part, std::vector<int> members,
                             std::uint64_t key) override {
    return std::make_unique<TracedComm>(std::move(part), std::move(members), key, trace_);
  }

  void stood_still(const char* why, double begin, double end) {
    if (end > begin) trace_.add({Row::kWait, why, begin, end});
  }
  void record(const Call& call, double end) { trace_.add(interval_of(call, call.issued_us, end)); }

  Trace& trace_;
  std::deque<Call> open_;  // issued, not waited for
};

}  // namespace

std::unique_ptr<Comm> trace_comm(std::unique_ptr<Comm> inner, Trace& trace) {
  std::vector<int> world = all_ranks(inner->size());
  return std::make_unique<TracedComm>(std::move(inner), std::move(world), 0, trace);
}

}  // namespace tr::par
