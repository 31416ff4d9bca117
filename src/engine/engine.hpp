// Engine: the operations in flight of one communicator, and who moves them forward.
//
// A blocking call with nothing else in flight runs on the caller's thread and touches no lock.
// Everything else is enqueued: operations move in issue order on each link, many at once. They are
// driven by whoever waits for one of them and, when nobody waits, by a thread that the first stream
// call starts.
//
// Threads: issue functions by one thread at a time (the communicator's entry guard); wait and
// progress by any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/status.hpp"
#include "engine/backoff.hpp"
#include "engine/operation.hpp"
#include "transports/link_pump.hpp"

namespace treering {

// What the communicator decides for the engine on the slow path of a wait.
class EngineOwner {
 public:
  virtual ~EngineOwner() = default;
  // `op` has not moved for `waited`. An error ends it and fails the communicator.
  virtual Status on_slow_wait(const Operation& op, std::chrono::nanoseconds waited) = 0;
  // The first failure of an operation; the owner publishes it. Returns the Status that callers get
  // (it may say more than `cause`).
  virtual Status on_failure(const Operation& op, const Status& cause) = 0;
  virtual void on_complete(const Operation& op) = 0;
  // `op` waits for a rank that cannot move before this thread leaves its core. Asked once a wait.
  virtual bool waits_in_vain(const Operation& op) = 0;
};

class Engine;

// An enqueued operation and what others may know of it.
struct Ticket {
  Operation op;
  std::atomic<bool> done{false};  // release: status is final; pairs with the acquire of waiters
  Status status;
  // Operations that must be done before this one starts (stream order where buffers overlap).
  std::vector<std::shared_ptr<Ticket>> after;
  std::shared_ptr<Engine> engine;  // that drives it
};

class Engine {
 public:
  // pump: what moves the messages of the links, driven by whoever waits; nullptr: memory does. It
  // outlives this.
  Engine(EngineOwner& owner, int spin, LinkPump* pump = nullptr)
      : owner_(owner), pump_(pump), spin_(spin), spin_now_(spin) {}
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Nothing is in flight: the caller may run an operation by itself.
  bool idle() const { return in_flight_.load(std::memory_order_acquire) == 0; }

  // Runs a started operation to its end on this thread. Requires idle().
  Status run_now(Operation& op);

  // Starts the thread that drives operations when nobody waits for them; nothing if it runs.
  Status start_thread();
  // Adds a started operation behind all others. With `background` (after start_thread) the thread
  // drives it when nobody waits.
  void enqueue(std::shared_ptr<Ticket> ticket, bool background);

  // Drives everything in flight until `ticket` is done.
  Status wait(const Ticket& ticket);
  // One pass over everything in flight, by a caller that waits for several engines. Returns whether
  // anything moved.
  bool poll();
  // Keeps the background thread asleep while somebody else polls.
  void begin_helping() { helpers_.fetch_add(1, std::memory_order_relaxed); }
  void end_helping();

  // Waits until nothing is in flight.
  Status drain();
  // Ends the background thread. Requires idle(); nothing may be enqueued afterwards.
  void stop();
  // Slow path for callers that poll several engines: deadlines, peers, abort.
  void check_slow(std::chrono::nanoseconds waited);
  int spin() const { return spin_; }

 private:
  bool poll_locked();
  void check_slow_locked(std::chrono::nanoseconds waited);
  void fail_all_locked(Ticket& ticket, const Status& cause);
  void finish_locked(Ticket& ticket, Status status);
  void drive();

  EngineOwner& owner_;
  LinkPump* const pump_;
  const int spin_;
  Spin spin_now_;     // of run_now
  std::mutex mutex_;  // guards all below but the atomics
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Ticket>> active_;
  // The number that the next operation's first message on a link will have.
  std::unordered_map<const void*, std::uint64_t> reserved_;
  std::atomic<int> in_flight_{0};  // release on decrement: the links are quiet; pairs with idle()
  std::atomic<int> helpers_{0};
  std::thread thread_;
  bool stop_ = false;
};

}  // namespace treering
