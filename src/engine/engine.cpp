#include "engine/engine.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

namespace treering {

Engine::~Engine() { stop(); }

void Engine::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status Engine::run_now(Operation& op) {
  op.is_head = true;
  Backoff backoff(spin_now_, pump_);
  while (!op.finished()) {
    if (op.progress() || (pump_ != nullptr && pump_->progress())) {
      backoff.reset();
    } else if (backoff.pause([&] { return owner_.waits_in_vain(op); })) {
      const Status status = owner_.on_slow_wait(op, backoff.waited());
      if (!status.ok()) return owner_.on_failure(op, status);
    }
  }
  if (!op.failure().ok()) return owner_.on_failure(op, op.failure());
  if (pump_ != nullptr) pump_->flush();
  owner_.on_complete(op);
  return {};
}

void Engine::enqueue(std::shared_ptr<Ticket> ticket, bool background) {
  std::lock_guard lock(mutex_);
  Operation& op = ticket->op;
  const std::vector<PlanLink>& links = op.plan().links();
  std::vector<std::uint64_t>& first = op.first_messages();
  first.resize(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    const void* end = links[i].tx != nullptr ? static_cast<const void*>(links[i].tx) : links[i].rx;
    const std::uint64_t next = links[i].tx != nullptr ? links[i].tx->next : links[i].rx->next;
    std::uint64_t& reserved = reserved_[end];
    reserved = std::max(reserved, next);
    first[i] = reserved;
    reserved += op.messages_on(static_cast<int>(i));
  }
  op.is_head = active_.empty();
  active_.push_back(std::move(ticket));
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  if (background) wake_.notify_one();
}

Status Engine::start_thread() {
  std::lock_guard lock(mutex_);
  if (thread_.joinable()) return {};
  try {
    thread_ = std::thread([this] { drive(); });
  } catch (const std::system_error& e) {
    return system_error("cannot start the thread that drives streams (see ulimit -u, -v)",
                        e.code().value());
  }
  return {};
}

bool Engine::poll_locked() {
  bool moved = pump_ != nullptr && pump_->progress();
  for (std::size_t i = 0; i < active_.size(); ++i) {
    Ticket& ticket = *active_[i];
    if (ticket.done.load(std::memory_order_relaxed)) continue;
    const bool must_wait = std::any_of(ticket.after.begin(), ticket.after.end(), [](const auto& t) {
      return !t->done.load(std::memory_order_acquire);  // pairs with finish_locked
    });
    if (must_wait) continue;
    ticket.after.clear();
    moved |= ticket.op.progress();
    if (!ticket.op.failure().ok()) {
      fail_all_locked(ticket, ticket.op.failure());
      moved = true;
      break;
    }
    if (ticket.op.finished()) {
      if (pump_ != nullptr) pump_->flush();
      owner_.on_complete(ticket.op);
      finish_locked(ticket, {});
      moved = true;
    }
  }
  while (!active_.empty() && active_.front()->done.load(std::memory_order_relaxed)) {
    active_.pop_front();
    if (!active_.empty()) active_.front()->op.is_head = true;
  }
  return moved;
}

// One operation failed: the communicator is failed, and so is everything in flight on it.
void Engine::fail_all_locked(Ticket& ticket, const Status& cause) {
  const Status status = owner_.on_failure(ticket.op, cause);
  for (const std::shared_ptr<Ticket>& t : active_) {
    if (!t->done.load(std::memory_order_relaxed)) finish_locked(*t, status);
  }
  // Tickets hold their engine: one that stayed here would keep both alive for ever.
  active_.clear();
}

void Engine::finish_locked(Ticket& ticket, Status status) {
  ticket.status = std::move(status);
  ticket.after.clear();
  ticket.done.store(true, std::memory_order_release);
  in_flight_.fetch_sub(1, std::memory_order_release);
}

bool Engine::poll() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && poll_locked();
}

void Engine::check_slow(std::chrono::nanoseconds waited) {
  std::lock_guard lock(mutex_);
  check_slow_locked(waited);
}

void Engine::check_slow_locked(std::chrono::nanoseconds waited) {
  for (const std::shared_ptr<Ticket>& ticket : active_) {
    if (ticket->done.load(std::memory_order_relaxed)) continue;
    const Status status = owner_.on_slow_wait(ticket->op, waited);
    if (!status.ok()) fail_all_locked(*ticket, status);
    return;  // the oldest one speaks for all
  }
}

void Engine::end_helping() {
  helpers_.fetch_sub(1, std::memory_order_relaxed);
  if (!idle()) wake_.notify_one();
}

Status Engine::wait(const Ticket& ticket) {
  begin_helping();
  Spin spin(spin_);
  Backoff backoff(spin, pump_);
  while (!ticket.done.load(std::memory_order_acquire)) {  // pairs with finish_locked
    if (poll()) {
      backoff.reset();
    } else if (backoff.pause()) {
      check_slow(backoff.waited());
    }
  }
  end_helping();
  return ticket.status;
}

Status Engine::drain() {
  for (;;) {
    std::shared_ptr<Ticket> last;
    {
      std::lock_guard lock(mutex_);
      if (active_.empty()) return {};
      last = active_.back();
    }
    TR_RETURN_IF_ERROR(wait(*last));
  }
}

void Engine::drive() {
  std::unique_lock lock(mutex_);
  Spin spin(spin_);
  Backoff backoff(spin, pump_);
  while (!stop_) {
    if (active_.empty()) {
      wake_.wait(lock);
      backoff.reset();
    } else if (helpers_.load(std::memory_order_relaxed) > 0) {
      wake_.wait_for(lock, std::chrono::milliseconds(1));
      backoff.reset();
    } else if (poll_locked()) {
      backoff.reset();
    } else {
      lock.unlock();
      const bool slow = backoff.pause();
      lock.lock();
      if (slow) check_slow_locked(backoff.waited());
    }
  }
}

}  // namespace treering
