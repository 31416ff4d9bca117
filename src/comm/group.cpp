#include "comm/group.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/launches.hpp"

namespace treering {
namespace {

struct Kept {
  std::shared_ptr<Communicator> comm;
  Request request;
  std::shared_ptr<Stream> stream;
  bool on_device = false;

  bool is_message() const { return request.call.collective == Collective::kSendRecv; }
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

// What group_end waits for: the calls without a stream.
struct Issued {
  std::vector<std::shared_ptr<Ticket>> tickets;
  std::vector<Communicator*> on_device;
};

// Calls that are issued together: one, or several messages or collectives on the device.
Status issue_launch(std::span<Kept* const> launch, Issued* issued) {
  Kept& first = *launch.front();
  Range range;
  if (!first.on_device) {
    TR_ASSIGN_OR_RETURN(const std::shared_ptr<Ticket> ticket,
                        first.comm->enqueue(first.request, first.stream.get(), range));
    if (first.stream == nullptr) issued->tickets.push_back(ticket);
    return {};
  }
  if (first.is_message()) {
    std::vector<Communicator::Message> messages;
    for (Kept* k : launch) messages.push_back({&k->request, k->stream.get()});
    TR_RETURN_IF_ERROR(first.comm->enqueue_messages(messages, range));
  } else {
    std::vector<Request*> requests;
    for (Kept* k : launch) requests.push_back(&k->request);
    TR_RETURN_IF_ERROR(first.comm->enqueue_on_device(requests, first.stream.get(), range));
  }
  const bool blocks =
      std::any_of(launch.begin(), launch.end(), [](const Kept* k) { return k->stream == nullptr; });
  if (blocks) issued->on_device.push_back(first.comm.get());
  return {};
}

Status issue_in_launches(std::vector<Kept>& kept, Issued* issued) {
  std::vector<GroupedCall> calls;
  for (const Kept& k : kept) {
    calls.push_back(
        {footprint_of(k.request), k.comm.get(), k.stream.get(), k.on_device, k.is_message()});
  }
  const std::vector<std::vector<std::size_t>> launches = launches_of(calls);
  for (const std::vector<std::size_t>& launch : launches) {
    if (kept[launch.front()].is_message() &&
        launch.size() > static_cast<std::size_t>(DeviceEngine::kMaxMessages)) {
      return unsupported("a group has " + std::to_string(launch.size()) +
                         " sends and receives of device memory on one communicator; at most " +
                         std::to_string(DeviceEngine::kMaxMessages) + " can progress together");
    }
  }
  for (const std::vector<std::size_t>& launch : launches) {
    std::vector<Kept*> members;
    for (const std::size_t i : launch) members.push_back(&kept[i]);
    TR_RETURN_IF_ERROR(issue_launch(members, issued));
  }
  return {};
}

// Issues all, and stops at the first that fails. Nothing is issued where a call's memory and stream
// do not fit.
Status issue(std::vector<Kept>& kept, Issued* issued) {
  bool any_on_device = false;
  for (Kept& k : kept) {
    TR_ASSIGN_OR_RETURN(k.on_device, k.comm->is_on_device(k.request, k.stream.get()));
    any_on_device |= k.on_device;
  }
  if (any_on_device) return issue_in_launches(kept, issued);
  for (Kept& k : kept) {
    Kept* const alone = &k;
    TR_RETURN_IF_ERROR(issue_launch({&alone, 1}, issued));
  }
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
  t_group.kept.push_back({comm.shared_from_this(), std::move(request), std::move(stream), false});
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
  const Range range(kept.empty() ? 0 : kept.front().comm->range_owner(), {.operation = "group"});
  Issued issued;
  Status status = issue(kept, &issued);
  Status finished = wait_all(issued.tickets);
  for (Communicator* comm : issued.on_device) {
    const Status done = comm->wait_for_device();
    if (finished.ok()) finished = done;
  }
  return status.ok() ? finished : status;
}

}  // namespace treering
