// Collectives share one stream, where those that use the same memory follow each other and others
// overlap. Each message has a stream of its own, since who waits for a receive must not wait for a
// send, which ends when the peer comes to it. Waiting for the newest collective drives the
// library's progress from here; for an older one there is its event.
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "treering/treering.hpp"

#include "parallel/flow.hpp"
#include "parallel/try.hpp"

namespace tr::par {
namespace {

class HostFlow final : public Flow {
 public:
  explicit HostFlow(Stream stream) : stream_(std::move(stream)) {}

  Result<tr_stream_t> begin(Kind kind) override {
    kind_ = kind;
    if (kind == Kind::kCollective) return stream_.get();
    if (idle_streams_.empty()) {
      TRY_ASSIGN(Stream made, Stream::create());
      idle_streams_.push_back(std::move(made));
    }
    return idle_streams_.back().get();
  }

  Status end(Mark mark) override {
    if (kind_ == Kind::kMessage) {
      messages_.push_back({mark, std::move(idle_streams_.back())});
      idle_streams_.pop_back();
      return {};
    }
    if (idle_events_.empty()) {
      TRY_ASSIGN(Event made, Event::create());
      idle_events_.push_back(std::move(made));
    }
    collectives_.push_back({mark, std::move(idle_events_.back())});
    idle_events_.pop_back();
    return collectives_.back().done.record(stream_);
  }

  Status wait(Mark mark) override {
    for (auto it = messages_.begin(); it != messages_.end(); ++it) {
      if (it->mark == mark) return end_message(it);
    }
    if (collectives_.empty() || mark < collectives_.front().mark) return {};
    if (mark >= collectives_.back().mark) return end_collectives();
    while (collectives_.front().mark < mark) retire();
    TRY(collectives_.front().done.synchronize());
    retire();
    return {};
  }
  Status wait_all() override {
    Status first = end_collectives();
    while (!messages_.empty()) {
      Status ended = end_message(messages_.begin());
      if (first.ok()) first = std::move(ended);
    }
    return first;
  }

  Status copy(const View& from, const View& to) override {
    if (from.data != to.data && !from.is_empty()) std::memmove(to.data, from.data, from.bytes());
    return {};
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
  void retire() {
    idle_events_.push_back(std::move(collectives_.front().done));
    collectives_.pop_front();
  }

  Kind kind_ = Kind::kCollective;       // of what has begun
  Stream stream_;                       // of the collectives
  std::deque<Collective> collectives_;  // issued, not waited for, by mark
  std::deque<Message> messages_;
  std::vector<Event> idle_events_;
  std::vector<Stream> idle_streams_;
};

}  // namespace

Result<std::unique_ptr<Flow>> make_host_flow() {
  TRY_ASSIGN(Stream stream, Stream::create());
  return std::unique_ptr<Flow>(std::make_unique<HostFlow>(std::move(stream)));
}

}  // namespace tr::par
