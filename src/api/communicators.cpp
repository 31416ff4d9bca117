// tr_comm_*: making, asking and ending communicators; groups; options.
#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "api/made.hpp"
#include "api/shim.hpp"
#include "bootstrap/bootstrap.hpp"
#include "comm/call_deadline.hpp"
#include "core/config.hpp"

using namespace treering;
using namespace treering::api;

namespace {

Status no_group(const char* what) {
  return in_group() ? invalid_usage(std::string(what) + " is not allowed inside a group")
                    : Status{};
}

Status check_size(int size, int rank) {
  if (size < 1 || size > kMaxRanks) {
    return invalid_argument("size is " + std::to_string(size) + "; it must be 1 to " +
                            std::to_string(kMaxRanks) + " ranks");
  }
  if (rank < 0 || rank >= size) {
    return invalid_argument("rank is " + std::to_string(rank) + "; it must be 0 to " +
                            std::to_string(size - 1));
  }
  return {};
}

// Runs body(0..count-1) side by side: all of them, or none where not all threads can be started.
template <class Body>
Status on_threads(int count, Body&& body) {
  enum { kWait, kGo, kGiveUp };
  std::atomic<int> word{kWait};
  std::vector<std::thread> threads;
  Status status;
  try {
    threads.reserve(count);
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        word.wait(kWait, std::memory_order_acquire);
        if (word.load(std::memory_order_acquire) == kGo) body(i);
      });
    }
  } catch (const std::system_error& e) {
    status = system_error("cannot start thread " + std::to_string(threads.size() + 1) + " of " +
                              std::to_string(count) + ", one for each rank (see ulimit -u, -v)",
                          e.code().value());
  }
  word.store(status.ok() ? kGo : kGiveUp, std::memory_order_release);
  word.notify_all();
  for (std::thread& t : threads) t.join();
  return status;
}

Status init_rank(tr_comm_t* comm, int size, const IdBytes& id, int rank) {
  TR_ASSIGN_OR_RETURN(const Config config, load_config());
  TR_ASSIGN_OR_RETURN(const std::unique_ptr<Rendezvous> rendezvous,
                      join_root(id, size, rank, config));
  return hand_out(Communicator::create(*rendezvous, config), comm);
}

}  // namespace

tr_result_t tr_get_unique_id(tr_unique_id_t* id) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("id", id));
    TR_ASSIGN_OR_RETURN(const Config config, load_config());
    TR_ASSIGN_OR_RETURN(const IdBytes bytes, start_root(config));
    std::copy(bytes.begin(), bytes.end(), id->bytes);
    return {};
  });
}

tr_result_t tr_comm_init_rank(tr_comm_t* comm, int size, tr_unique_id_t id, int rank) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("comm", comm));
    *comm = nullptr;
    TR_RETURN_IF_ERROR(no_group("tr_comm_init_rank"));
    TR_RETURN_IF_ERROR(check_size(size, rank));
    IdBytes bytes;
    std::copy(std::begin(id.bytes), std::end(id.bytes), bytes.begin());
    return init_rank(comm, size, bytes, rank);
  });
}

tr_result_t tr_comm_init_env(tr_comm_t* comm) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("comm", comm));
    *comm = nullptr;
    TR_RETURN_IF_ERROR(no_group("tr_comm_init_env"));
    TR_ASSIGN_OR_RETURN(const Config config, load_config());
    TR_ASSIGN_OR_RETURN(const LaunchEnv env, launch_env(config));
    TR_ASSIGN_OR_RETURN(const std::unique_ptr<Rendezvous> rendezvous, join_env(env, config));
    return hand_out(Communicator::create(*rendezvous, config), comm);
  });
}

tr_result_t tr_comm_init_all(tr_comm_t* comms, int size) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("comms", comms));
    TR_RETURN_IF_ERROR(check_size(size, 0));
    std::fill(comms, comms + size, nullptr);
    TR_RETURN_IF_ERROR(no_group("tr_comm_init_all"));
    TR_ASSIGN_OR_RETURN(const Config config, load_config());
    TR_ASSIGN_OR_RETURN(const IdBytes id, start_root(config));
    std::vector<Status> status(size);
    TR_RETURN_IF_ERROR(
        on_threads(size, [&](int r) { status[r] = init_rank(&comms[r], size, id, r); }));
    const auto bad =
        std::find_if(status.begin(), status.end(), [](const Status& s) { return !s.ok(); });
    if (bad == status.end()) return {};
    for (int r = 0; r < size; ++r) {
      if (comms[r] != nullptr) (void)tr_comm_destroy(comms[r]);
      comms[r] = nullptr;
    }
    return *bad;
  });
}

tr_result_t tr_comm_split(tr_comm_t comm, int color, int key, tr_comm_t* newcomm) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("newcomm", newcomm));
    *newcomm = nullptr;
    TR_RETURN_IF_ERROR(no_group("tr_comm_split"));
    if (color < 0 && color != TR_SPLIT_NONE) {
      return invalid_argument("color is " + std::to_string(color) +
                              "; it must be >= 0 or TR_SPLIT_NONE");
    }
    CommCall call;
    TR_RETURN_IF_ERROR(call.enter(comm));
    TR_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> made, call.comm().split(color, key));
    return made == nullptr ? Status{} : hand_out(std::move(made), newcomm);
  });
}

tr_result_t tr_comm_size(tr_comm_t comm, int* size) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("size", size));
    TR_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> c, share_comm(comm));
    *size = c->size();
    return {};
  });
}

tr_result_t tr_comm_rank(tr_comm_t comm, int* rank) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("rank", rank));
    TR_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> c, share_comm(comm));
    *rank = c->rank();
    return {};
  });
}

tr_result_t tr_comm_finalize(tr_comm_t comm) {
  return guarded([&]() -> Status {
    CommCall call;
    TR_RETURN_IF_ERROR(call.enter(comm));
    if (group_uses(call.comm()))
      return invalid_usage("the communicator has calls in an open group");
    return call.comm().finalize();
  });
}

tr_result_t tr_comm_destroy(tr_comm_t comm) {
  return guarded([&]() -> Status {
    CommCall call;
    TR_RETURN_IF_ERROR(call.enter(comm));
    if (group_uses(call.comm()))
      return invalid_usage("the communicator has calls in an open group");
    // An error that nobody has been told of yet does not keep the communicator.
    const Status status = call.comm().finalize();
    const std::shared_ptr<Communicator> last = call.take();
    return status;
  });
}

tr_result_t tr_comm_abort(tr_comm_t comm) {
  return guarded([&]() -> Status {
    TR_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> c, share_comm(comm));
    TR_RETURN_IF_ERROR(c->check_process());
    c->abort();
    return {};
  });
}

tr_result_t tr_comm_get_async_error(tr_comm_t comm, tr_result_t* error) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("error", error));
    TR_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> c, share_comm(comm));
    (void)c->check_past_calls();
    *error = finish(c->async_error(), false);
    return {};
  });
}

tr_result_t tr_comm_explain(tr_comm_t comm, const char** text) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("text", text));
    CommCall call;
    TR_RETURN_IF_ERROR(call.enter(comm));
    *text = call.comm().explain();
    return {};
  });
}

tr_result_t tr_comm_set_option(tr_comm_t comm, tr_option_t option, int64_t value) {
  return guarded([&]() -> Status {
    CommCall call;
    TR_RETURN_IF_ERROR(call.enter(comm));
    switch (option) {
      case TR_OPT_ORDERED:
        if (value != 0 && value != 1) return invalid_argument("TR_OPT_ORDERED is 0 or 1");
        return call.comm().set_ordered(value == 1);
      case TR_OPT_COPY_ENGINE:
        if (value < 0 || value > 2) return invalid_argument("TR_OPT_COPY_ENGINE is 0, 1 or 2");
        return call.comm().set_copy_engine(value);
      case TR_OPT_TIMEOUT_MS:
        return call.comm().set_timeout_ms(value);
      case TR_OPT_WARN_MS:
        return call.comm().set_warn_ms(value);
    }
    return invalid_argument("unknown option " + std::to_string(static_cast<int>(option)) +
                            "; see tr_option_t");
  });
}

tr_result_t tr_set_call_deadline(int64_t timeout_ms, int64_t warn_ms) {
  return guarded([&]() -> Status {
    if (timeout_ms < -1 || warn_ms < -1) {
      return invalid_argument("a deadline is -1 (the communicator's), 0 (never) or milliseconds");
    }
    call_deadline() = {timeout_ms, warn_ms};
    return {};
  });
}

tr_result_t tr_comm_save_flight(tr_comm_t comm, const char* path) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("path", path));
    TR_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> c, share_comm(comm));
    TR_RETURN_IF_ERROR(c->check_process());
    return c->save_flight(path);
  });
}

tr_result_t tr_comm_set_algorithm(tr_comm_t comm, const char* collective, const char* algorithm) {
  return guarded([&]() -> Status {
    TR_RETURN_IF_ERROR(check_pointer("collective", collective));
    TR_RETURN_IF_ERROR(check_pointer("algorithm", algorithm));
    CommCall call;
    TR_RETURN_IF_ERROR(call.enter(comm));
    return call.comm().set_algorithm(collective, algorithm);
  });
}

tr_result_t tr_group_start(void) {
  group_start();
  return TR_SUCCESS;
}

tr_result_t tr_group_end(void) {
  return guarded([] { return group_end(); });
}
