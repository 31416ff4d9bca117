#include "comm/group.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace treering {
namespace {

struct Kept {
  std::shared_ptr<Communicator> comm;
  Request request;
  std::shared_ptr<Stream> stream;
};

struct Group {
  int depth = 0;
  std::vector<Kept> kept;
  Status first_error;
};
thread_local Group t_group;

// Polls all engines in turn until every ticket is done: the calls may depend on each other,
// whichever communicator they are on.
Status wait_all(const std::vector<std::shared_ptr<Ticket>>& tickets) {
  std::vector<Engine*> engines;
  for (const auto& t : tickets) engines.push_back(t->engine.get());
  std::sort(engines.begin(), engines.end());
  engines.erase(std::unique(engines.begin(), engines.end()), engines.end());
  if (engines.empty()) return {};
  for (Engine* e : engines) e->begin_helping();
  Spin spin(engines.front()->spin());
  Backoff backoff(spin);
  const auto all_done = [&] {
    return std::all_of(tickets.begin(), tickets.end(), [](const auto& t) {
      return t->done.load(std::memory_order_acquire);  // pairs with Engine::finish_locked
    });
  };
  while (!all_done()) {
    bool moved = false;
    for (Engine* e : engines) moved |= e->poll();
    if (moved) {
      backoff.reset();
    } else if (backoff.pause()) {
      for (Engine* e : engines) e->check_slow(backoff.waited());
    }
  }
  for (Engine* e : engines) e->end_helping();
  for (const auto& t : tickets) TR_RETURN_IF_ERROR(t->status);
  return {};
}

}  // namespace

bool in_group() { return t_group.depth > 0; }
void group_start() { ++t_group.depth; }

void group_note_error(const Status& status) {
  if (in_group() && t_group.first_error.ok()) t_group.first_error = status;
}

bool group_uses(const Communicator& comm) {
  return std::any_of(t_group.kept.begin(), t_group.kept.end(),
                     [&](const Kept& k) { return k.comm.get() == &comm; });
}

Status run_or_keep(Communicator& comm, Request& request, std::shared_ptr<Stream> stream) {
  if (!in_group()) return comm.launch(request, stream.get());
  t_group.kept.push_back({comm.shared_from_this(), std::move(request), std::move(stream)});
  return {};
}

Status group_end() {
  if (!in_group()) return invalid_usage("tr_group_end without tr_group_start");
  if (--t_group.depth > 0) return {};
  std::vector<Kept> kept = std::exchange(t_group.kept, {});
  const Status error = std::exchange(t_group.first_error, Status{});
  if (!error.ok()) return error.with_context("nothing in the group was issued");

  std::vector<std::unique_ptr<Communicator::Guard>> guards;
  std::vector<Communicator*> comms;
  for (const Kept& k : kept) comms.push_back(k.comm.get());
  std::sort(comms.begin(), comms.end());
  comms.erase(std::unique(comms.begin(), comms.end()), comms.end());
  for (Communicator* comm : comms) {
    guards.push_back(std::make_unique<Communicator::Guard>());
    TR_RETURN_IF_ERROR(guards.back()->enter(*comm));
  }
  std::vector<std::shared_ptr<Ticket>> waited;
  std::vector<Communicator*> on_device;
  Status status;
  for (Kept& k : kept) {
    const Result<bool> is_on_device = k.comm->is_on_device(k.request, k.stream.get());
    status = is_on_device.status();
    if (!status.ok()) break;
    if (is_on_device.value()) {
      status = k.comm->enqueue_on_device(k.request, k.stream.get());
      if (!status.ok()) break;
      if (k.stream == nullptr) on_device.push_back(k.comm.get());
      continue;
    }
    Result<std::shared_ptr<Ticket>> ticket = k.comm->enqueue(k.request, k.stream.get());
    if (!ticket.ok()) {
      status = ticket.status();
      break;
    }
    if (k.stream == nullptr) waited.push_back(ticket.value());
  }
  Status finished = wait_all(waited);
  for (Communicator* comm : on_device) {
    const Status done = comm->wait_for_device();
    if (finished.ok()) finished = done;
  }
  return status.ok() ? finished : status;
}

}  // namespace treering
