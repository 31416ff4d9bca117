#include "comm/stream.hpp"

#include <algorithm>

#include "engine/device_engine.hpp"

namespace treering {
namespace {

bool is_done(const std::shared_ptr<Ticket>& ticket) {
  return ticket->done.load(std::memory_order_acquire);  // pairs with Engine::finish_locked
}

bool overlap(const std::byte* a, std::uint64_t a_bytes, const std::byte* b, std::uint64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

// The engines' own threads drive stream operations, and each has a deadline, so this ends.
void await(const Ticket& ticket, int spin) {
  Spin limit(spin);
  Backoff backoff(limit);
  while (!ticket.done.load(std::memory_order_acquire)) backoff.pause();
}

}  // namespace

Footprint footprint_of(const Request& request) {
  return {request.call.in, request.in_bytes, request.call.out, request.out_bytes,
          request.call.collective == Collective::kBarrier};
}

bool must_follow(const Footprint& later, const Footprint& earlier) {
  return later.everything || earlier.everything ||
         overlap(later.out, later.out_bytes, earlier.in, earlier.in_bytes) ||
         overlap(later.out, later.out_bytes, earlier.out, earlier.out_bytes) ||
         overlap(later.in, later.in_bytes, earlier.out, earlier.out_bytes);
}

void Stream::prune_locked() {
  while (!entries_.empty() && is_done(entries_.front().ticket)) {
    if (first_error_.ok()) first_error_ = entries_.front().ticket->status;
    entries_.pop_front();
  }
  std::erase_if(fences_, is_done);
}

void Stream::add(const std::shared_ptr<Ticket>& ticket, const Footprint& footprint) {
  std::lock_guard lock(mutex_);
  prune_locked();
  ticket->after = fences_;
  for (const Entry& e : entries_) {
    if (!is_done(e.ticket) && must_follow(footprint, e.footprint))
      ticket->after.push_back(e.ticket);
  }
  entries_.push_back({ticket, footprint});
}

void Stream::add(std::shared_ptr<StreamUser> user) {
  std::lock_guard lock(mutex_);
  std::erase_if(users_, [&](const auto& u) { return u.expired() || u.lock() == user; });
  users_.push_back(std::move(user));
}

std::vector<std::shared_ptr<StreamUser>> Stream::users() {
  std::vector<std::shared_ptr<StreamUser>> result;
  std::lock_guard lock(mutex_);
  for (const auto& weak : users_) {
    if (auto user = weak.lock()) result.push_back(std::move(user));
  }
  return result;
}

// A kernel that waits for a rank that is gone ends when the communicator knows of it.
Status Stream::synchronize_cuda(int spin) {
  Spin limit(spin);
  Backoff backoff(limit);
  for (;;) {
    TR_ASSIGN_OR_RETURN(const bool done, query_device_stream(cuda_stream_));
    if (done) break;
    if (!backoff.pause()) continue;
    for (const auto& user : users()) (void)user->watch();  // its status is collected below
  }
  for (const auto& user : users()) {
    TR_RETURN_IF_ERROR(user->settle());
  }
  return {};
}

Status Stream::synchronize(int spin) {
  if (is_cuda_) return synchronize_cuda(spin);
  for (const std::shared_ptr<Ticket>& ticket : pending()) {
    if (ticket->engine != nullptr) {
      (void)ticket->engine->wait(*ticket);  // its status is collected below
    } else {
      await(*ticket, spin);
    }
  }
  std::lock_guard lock(mutex_);
  prune_locked();
  return std::exchange(first_error_, Status{});
}

bool Stream::query() {
  if (is_cuda_) {
    const Result<bool> done = query_device_stream(cuda_stream_);
    return !done.ok() || done.value();  // a broken stream: synchronize says how
  }
  std::lock_guard lock(mutex_);
  prune_locked();
  return entries_.empty();
}

std::vector<std::shared_ptr<Ticket>> Stream::pending() {
  std::lock_guard lock(mutex_);
  prune_locked();
  std::vector<std::shared_ptr<Ticket>> result;
  for (const Entry& e : entries_) {
    if (!is_done(e.ticket)) result.push_back(e.ticket);
  }
  return result;
}

void Stream::wait_for(const std::vector<std::shared_ptr<Ticket>>& tickets) {
  std::lock_guard lock(mutex_);
  fences_.insert(fences_.end(), tickets.begin(), tickets.end());
}

void Event::record(Stream* stream) {
  std::vector<std::shared_ptr<Ticket>> now;
  if (stream != nullptr) now = stream->pending();
  std::lock_guard lock(mutex_);
  tickets_ = std::move(now);
}

bool Event::query() {
  std::lock_guard lock(mutex_);
  std::erase_if(tickets_, is_done);
  return tickets_.empty();
}

void Event::synchronize(int spin) {
  for (const std::shared_ptr<Ticket>& ticket : tickets()) await(*ticket, spin);
}

std::vector<std::shared_ptr<Ticket>> Event::tickets() {
  std::lock_guard lock(mutex_);
  std::erase_if(tickets_, is_done);
  return tickets_;
}

}  // namespace treering
