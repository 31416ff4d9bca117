#include "perf/worker.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>

#include "perf/wire.hpp"

namespace treering::perf {
namespace {

constexpr unsigned char kStale =
    0xa5;  // what recv holds before a check, so that old results are seen
// A little more than the driver waits, so that it is the driver who reports the hang.
constexpr unsigned kGraceSeconds = 10;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool g_ranks_are_threads = false;  // set before the threads start

unsigned alarm_seconds() {
  return static_cast<unsigned>(std::atoi(variable(kTimeoutVariable).c_str())) + kGraceSeconds;
}

class Worker {
 public:
  explicit Worker(Library& library) : library_(library) {}

  Failure serve() {
    if (Failure failure = connect_to(variable(kSocketVariable), &socket_)) return failure;
    Hello hello;
    hello.team = std::atoi(variable(kTeamVariable).c_str());
    hello.rank = library_.rank();
    hello.ranks = library_.ranks();
    hello.devices = library_.memory().devices();
    hello.device_number = library_.memory().device_number();
    copy_text(library_.memory().device(), hello.device);
    copy_text(library_.version(), hello.version);
    if (Failure failure = send_message(socket_, &hello, sizeof hello)) return failure;
    for (;;) {
      limit(0);
      Command command;
      bool closed = false;
      if (Failure failure = receive_message(socket_, &command, sizeof command, &closed)) {
        return closed ? std::nullopt : failure;  // the driver is gone: nothing more to do
      }
      if (command.verb == Verb::kQuit) return std::nullopt;
      limit(alarm_seconds());
      Reply reply;
      if (Failure failure = obey(command, &reply)) {
        reply.ok = 0;
        copy_text(*failure, reply.text);
      }
      if (Failure failure = send_message(socket_, &reply, sizeof reply)) return failure;
    }
  }

 private:
  // There is one alarm a process: where ranks are threads, rank 0's. The driver tells all of them
  // the same, at the same time.
  void limit(unsigned seconds) const {
    if (library_.rank() == 0 || !g_ranks_are_threads) ::alarm(seconds);
  }

  Failure obey(const Command& command, Reply* reply) {
    switch (command.verb) {
      case Verb::kSettings:
        return tell_settings(command, reply);
      case Verb::kReserve:
        bytes_ = command.arg;
        return library_.allocate(command.arg, &a_, &b_);
      case Verb::kPrepare:
        return prepare(command);
      case Verb::kCheck:
        return check(command, reply);
      case Verb::kRun:
        return time(command, reply);
      case Verb::kCopy:
        return copy(reply);
      case Verb::kQuit:
        break;
    }
    return "unknown command";
  }

  Failure tell_settings(const Command& command, Reply* reply) {
    std::string why = "not supported";
    const std::vector<std::string> names = library_.settings(command.what, &why);
    if (names.empty()) return why;
    std::string text = names.front();
    for (std::size_t i = 1; i < names.size(); ++i) text += "," + names[i];
    copy_text(text, reply->text);
    return std::nullopt;
  }

  Failure place(const Case& what, Buffers* out) const {
    if (total_bytes(what, library_.ranks()) > bytes_) return "the buffers are too small";
    *out = place_buffers(what, library_.rank(), a_, b_);
    return std::nullopt;
  }

  Failure prepare(const Command& command) {
    Buffers buffers;
    if (Failure failure = place(command.what, &buffers)) return failure;
    return ready(command, buffers);
  }

  Failure check(const Command& command, Reply* reply) {
    Buffers buffers;
    if (Failure failure = place(command.what, &buffers)) return failure;
    const Pattern pattern(command.what, library_.ranks(), command.arg, library_.rules(),
                          command.specials != 0);
    Memory& memory = library_.memory();
    const std::size_t elem = type_bytes(command.what.type);
    const std::size_t sent = send_elems(command.what, library_.ranks()) * elem;
    const std::size_t received = recv_elems(command.what, library_.ranks()) * elem;
    if (Failure failure = memory.set(b_, kStale, total_bytes(command.what, library_.ranks()))) {
      return failure;
    }
    if (Failure failure = memory.write(buffers.send, sent,
                                       [&](void* host) { pattern.fill(library_.rank(), host); })) {
      return failure;
    }
    if (Failure failure = ready(command, buffers)) return failure;
    if (Failure failure = library_.run(1)) return failure;
    if (Failure failure = library_.finish()) return failure;
    return memory.read(buffers.recv, received, [&](const void* host) {
      reply->number = pattern.count_wrong(library_.rank(), host);
    });
  }

  Failure time(const Command& command, Reply* reply) {
    Buffers buffers;
    Memory& memory = library_.memory();
    if (Failure failure = place(command.what, &buffers)) return failure;
    if (Failure failure = ready(command, buffers)) return failure;
    if (Failure failure = library_.run(command.warmup)) return failure;
    if (Failure failure = library_.barrier()) return failure;
    if (Failure failure = memory.begin()) return failure;
    if (Failure failure = library_.run(command.arg)) return failure;
    if (Failure failure = memory.end()) return failure;
    if (Failure failure = library_.finish()) return failure;
    return memory.elapsed(&reply->number);
  }

  // The first rank of each device measures; the others leave it alone.
  Failure copy(Reply* reply) {
    Memory& memory = library_.memory();
    if (library_.rank() != memory.device_number()) return std::nullopt;
    double gb_s = 0;
    if (Failure failure = memory.measure_copy(&gb_s)) return failure;
    reply->number = static_cast<std::uint64_t>(gb_s * 1e9);
    return std::nullopt;
  }

  // Prepares the case unless it is the one prepared last; all ranks leave together.
  Failure ready(const Command& command, const Buffers& buffers) {
    const bool same = has_prepared_ && command.what == prepared_.what &&
                      std::strcmp(command.setting, prepared_.setting) == 0;
    if (!same) {
      has_prepared_ = false;
      if (Failure failure =
              library_.prepare(command.setting, command.what, buffers.send, buffers.recv)) {
        return failure;
      }
      prepared_ = command;
      has_prepared_ = true;
    }
    return library_.barrier();
  }

  Library& library_;
  Fd socket_;
  std::uint64_t bytes_ = 0;  // of each buffer
  void* a_ = nullptr;
  void* b_ = nullptr;
  bool has_prepared_ = false;
  Command prepared_;
};

}  // namespace

void limit_start_up() { ::alarm(alarm_seconds()); }

int run_worker(Library& library) {
  Worker worker(library);
  if (Failure failure = worker.serve()) {
    std::fprintf(stderr, "worker of rank %d: %s\n", library.rank(), failure->c_str());
    return 1;
  }
  return 0;
}

int run_ranks(int threads, const std::function<int(const RankPlace&)>& one_rank) {
  if (threads == 0) {
    return one_rank({std::atoi(variable("RANK").c_str()),
                     std::max(1, std::atoi(variable("WORLD_SIZE").c_str())), false});
  }
  g_ranks_are_threads = true;
  std::vector<int> statuses(static_cast<std::size_t>(threads));
  std::vector<std::thread> ranks;
  for (int r = 0; r < threads; ++r) {
    ranks.emplace_back([&, r] {
      statuses[static_cast<std::size_t>(r)] = one_rank({r, threads, true});
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return *std::max_element(statuses.begin(), statuses.end());
}

}  // namespace treering::perf
