// Gloo over TCP on the loopback as a backend of the parallelism layer, for comparison.
//
// Linked whole, it registers itself as "gloo". Gloo's collectives block, so a thread of each group
// runs them in issue order; messages need none. Ranks meet through Treering: no file, no port.
// 16-bit floats are moved but not summed, and sums are in the ring's order.
#include <algorithm>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "treering/parallel/comm.hpp"
#include "treering/treering.hpp"

#include "peers/comm_deadline.hpp"

namespace treering::peers {
namespace {

using tr::Communicator;
using tr::Error;
using tr::Result;
using tr::Status;
using tr::par::Comm;
using tr::par::DType;
using tr::par::Reduction;
using tr::par::View;

using ContextPtr = std::shared_ptr<gloo::rendezvous::Context>;
using BufferPtr = std::unique_ptr<gloo::transport::UnboundBuffer>;

constexpr std::uint64_t kMessageSlots = std::uint64_t{0x80} << 56;  // none of Gloo's own prefixes

// Gloo answers with exceptions; they end here.
Status guarded(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return Error{TR_SYSTEM_ERROR, std::string("gloo: ") + error.what()};
  }
  return {};
}

// Every rank sets as many keys as the others, at the same times; then all have all of them.
class MeetingStore final : public gloo::rendezvous::Store {
 public:
  explicit MeetingStore(Communicator& meeting) : meeting_(meeting) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const std::vector<std::string> keys = gather(key);
    const std::vector<std::string> values = gather({data.begin(), data.end()});
    for (std::size_t q = 0; q < keys.size(); ++q) values_[keys[q]] = values[q];
  }
  std::vector<char> get(const std::string& key) override {
    const std::string& value = values_.at(key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>&) override {}

 private:
  std::vector<std::string> gather(const std::string& mine) {
    const auto n = static_cast<std::size_t>(meeting_.size());
    const std::vector<std::uint64_t> length = {mine.size()};
    std::vector<std::uint64_t> lengths(n);
    meeting_.all_gather(length, lengths).or_throw();
    const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
    std::vector<std::uint8_t> padded(longest), all(n * longest);
    std::copy(mine.begin(), mine.end(), padded.begin());
    meeting_.all_gather(padded, all).or_throw();
    std::vector<std::string> texts;
    for (std::size_t q = 0; q < n; ++q) {
      const auto at = all.begin() + static_cast<std::ptrdiff_t>(q * longest);
      texts.emplace_back(at, at + static_cast<std::ptrdiff_t>(lengths[q]));
    }
    return texts;
  }

  Communicator& meeting_;
  std::map<std::string, std::string> values_;
};

class GlooComm final : public Comm {
 public:
  static Result<std::unique_ptr<Comm>> make(Communicator meeting) {
    ContextPtr context;
    Status connected = guarded([&] {
      context = std::make_shared<gloo::rendezvous::Context>(meeting.rank(), meeting.size());
      context->setTimeout(comm_deadline());
      if (meeting.size() == 1) return;
      MeetingStore store(meeting);
      auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
      context->connectFullMesh(store, device);
    });
    if (!connected) return connected.error();
    return std::unique_ptr<Comm>(new GlooComm(std::move(meeting), std::move(context)));
  }
  ~GlooComm() override {
    (void)wait_all();
    {
      std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const char* backend() const override { return "gloo"; }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  Status wait(Mark mark) override {
    if (auto it = messages_.find(mark); it != messages_.end()) {
      const Message message = std::move(it->second);
      messages_.erase(it);
      return end(message);
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= mark || queue_.empty(); });  // Gloo has the deadline
    return failed_;
  }
  Status wait_all() override {
    Status first;
    for (const auto& [mark, message] : std::exchange(messages_, {})) {
      Status ended = end(message);
      if (first.ok()) first = std::move(ended);
    }
    Status collectives = wait(last());
    return first.ok() ? collectives : first;
  }

  Status set_rank_order(bool on) override {
    if (!on) return {};
    return Error{TR_UNSUPPORTED, "gloo: Gloo sums in a ring's order: use the treering backend"};
  }

 protected:
  Status do_all_reduce(const View& send, const View& recv, Reduction op) override {
    return with_element(send.type, [&](auto element) {
      using T = decltype(element);
      return enqueue([=, context = context_] {
        gloo::AllreduceOptions options(context);
        if (send.data != recv.data) options.setInput(static_cast<T*>(send.data), elements(send));
        options.setOutput(static_cast<T*>(recv.data), elements(recv));
        options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
        using Function = void (*)(void*, const void*, const void*, std::size_t);
        options.setReduceFunction(op == Reduction::kSum ? Function(&gloo::sum<T>)
                                                        : Function(&gloo::max<T>));
        gloo::allreduce(options);
      });
    });
  }
  // Gloo's works in place and leaves the result at the start.
  Status do_reduce_scatter(const View& send, const View& recv) override {
    if (send.elements() > INT_MAX) {
      return Error{TR_UNSUPPORTED, "gloo: reduce_scatter's counts are ints"};
    }
    return with_element(send.type, [&](auto element) {
      using T = decltype(element);
      return enqueue([=, context = context_] {
        std::vector<T> work(elements(send));
        if (!work.empty()) std::memcpy(work.data(), send.data, send.bytes());
        const std::vector<int> parts(static_cast<std::size_t>(context->size),
                                     static_cast<int>(recv.elements()));
        gloo::ReduceScatterHalvingDoubling<T> algorithm(context, {work.data()},
                                                        static_cast<int>(send.elements()), parts);
        algorithm.run();
        if (!recv.is_empty()) std::memcpy(recv.data, work.data(), recv.bytes());
      });
    });
  }
  // Moves are of bytes, whatever the type.
  Status do_all_gather(const View& send, const View& recv) override {
    return enqueue([=, context = context_] {
      gloo::AllgatherOptions options(context);
      char* own = bytes(recv) + send.bytes() * static_cast<std::size_t>(context->rank);
      if (send.data != own) options.setInput(bytes(send), send.bytes());
      options.setOutput(bytes(recv), recv.bytes());
      gloo::allgather(options);
    });
  }
  Status do_all_to_all(const View& send, const View& recv) override {
    return enqueue([=, context = context_] {
      gloo::AlltoallOptions options(context);
      options.setInput(bytes(send), send.bytes());
      options.setOutput(bytes(recv), recv.bytes());
      gloo::alltoall(options);
    });
  }
  Status do_broadcast(const View& data, int root) override {
    return enqueue([=, context = context_] {
      gloo::BroadcastOptions options(context);
      options.setOutput(bytes(data), data.bytes());
      options.setRoot(root);
      gloo::broadcast(options);
    });
  }
  Status do_send(const View& data, int peer) override {
    return guarded([&] {
      BufferPtr buffer = context_->createUnboundBuffer(data.data, data.bytes());
      buffer->send(peer, kMessageSlots + sent_[peer]++);
      messages_[last()] = {std::move(buffer), true};
    });
  }
  Status do_recv(const View& data, int peer) override {
    return guarded([&] {
      BufferPtr buffer = context_->createUnboundBuffer(data.data, data.bytes());
      buffer->recv(peer, kMessageSlots + received_[peer]++);
      messages_[last()] = {std::move(buffer), false};
    });
  }
  Status do_barrier() override {
    Status issued = enqueue([context = context_] {
      gloo::BarrierOptions options(context);
      gloo::barrier(options);
    });
    return issued ? wait(last()) : issued;
  }
  Result<std::unique_ptr<Comm>> do_split(int color, int new_rank, int) override {
    Result<Communicator> part = meeting_.split(color, new_rank);
    if (!part) return part.error();
    return make(std::move(part).value());
  }

 private:
  struct Message {
    BufferPtr buffer;
    bool is_send;
  };
  struct Collective {
    Mark mark;
    std::function<void()> run;
  };

  GlooComm(Communicator meeting, ContextPtr context)
      : meeting_(std::move(meeting)), context_(std::move(context)), thread_([this] { run(); }) {}

  static char* bytes(const View& view) { return static_cast<char*>(view.data); }
  static std::size_t elements(const View& view) {
    return static_cast<std::size_t>(view.elements());
  }
  template <class Body>
  static Status with_element(DType type, const Body& body) {
    if (type == DType::kFloat64) return body(double{});
    if (type == DType::kFloat32) return body(float{});
    return Error{TR_UNSUPPORTED,
                 std::string("gloo: this backend does not sum ") + tr::par::name_of(type)};
  }

  static Status end(const Message& message) {
    bool is_done = false;
    Status ended = guarded([&] {
      is_done = message.is_send ? message.buffer->waitSend(comm_deadline())
                                : message.buffer->waitRecv(comm_deadline());
    });
    if (!ended || is_done) return ended;
    return Error{TR_ABORTED, "gloo: a message was aborted"};
  }

  Status enqueue(std::function<void()> collective) {
    {
      std::lock_guard lock(mutex_);
      if (!failed_) return failed_;
      queue_.push({last(), std::move(collective)});
    }
    changed_.notify_all();
    return {};
  }

  // The thread: collectives in issue order, until one fails.
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Collective& next = queue_.front();
      const bool can_run = failed_.ok();
      lock.unlock();
      Status ran = can_run ? guarded(next.run) : Status();
      lock.lock();
      if (!ran && failed_.ok()) failed_ = std::move(ran);
      done_ = next.mark;
      queue_.pop();
      changed_.notify_all();
    }
  }

  Communicator meeting_;  // the same ranks
  ContextPtr context_;
  std::map<Mark, Message> messages_;
  std::map<int, std::uint64_t> sent_, received_;  // by peer

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::queue<Collective> queue_;
  Mark done_ = 0;
  Status failed_;
  bool is_ending_ = false;
  std::thread thread_;
};

Result<std::unique_ptr<Comm>> make_world() {
  Result<Communicator> world = Communicator::from_env();
  if (!world) return world.error();
  return GlooComm::make(std::move(world).value());
}

[[maybe_unused]] const bool kRegistered = (tr::par::register_backend("gloo", make_world), true);

}  // namespace
}  // namespace treering::peers
