#include "perf/worker.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "perf/wire.hpp"

namespace treering::perf {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr unsigned char kStale =
    0xa5;  // what recv holds before a check, so that old results are seen
// A little more than the driver waits, so that it is the driver who reports the hang.
constexpr unsigned kGraceSeconds = 10;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

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
    copy_text(library_.version(), hello.version);
    if (Failure failure = send_message(socket_, &hello, sizeof hello)) return failure;
    for (;;) {
      ::alarm(0);
      Command command;
      bool closed = false;
      if (Failure failure = receive_message(socket_, &command, sizeof command, &closed)) {
        return closed ? std::nullopt : failure;  // the driver is gone: nothing more to do
      }
      if (command.verb == Verb::kQuit) return std::nullopt;
      ::alarm(alarm_seconds());
      Reply reply;
      if (Failure failure = obey(command, &reply)) {
        reply.ok = 0;
        copy_text(*failure, reply.text);
      }
      if (Failure failure = send_message(socket_, &reply, sizeof reply)) return failure;
    }
  }

 private:
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
    std::memset(b_, kStale, total_bytes(command.what, library_.ranks()));
    pattern.fill(library_.rank(), buffers.send);
    if (Failure failure = ready(command, buffers)) return failure;
    if (Failure failure = library_.run(1)) return failure;
    reply->number = pattern.count_wrong(library_.rank(), buffers.recv);
    return std::nullopt;
  }

  Failure time(const Command& command, Reply* reply) {
    Buffers buffers;
    if (Failure failure = place(command.what, &buffers)) return failure;
    if (Failure failure = ready(command, buffers)) return failure;
    if (Failure failure = library_.run(command.warmup)) return failure;
    if (Failure failure = library_.barrier()) return failure;
    const auto begin = std::chrono::steady_clock::now();
    if (Failure failure = library_.run(command.arg)) return failure;
    const auto end = std::chrono::steady_clock::now();
    reply->number = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count());
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

Failure Library::allocate(std::size_t bytes, void** a, void** b) {
  for (void** buffer : {a, b}) {
    std::free(*buffer);
    *buffer = nullptr;
    if (posix_memalign(buffer, kPageBytes, bytes) != 0) {
      return "cannot allocate " + std::to_string(bytes) + " bytes";
    }
    std::memset(*buffer, 0, bytes);
  }
  return std::nullopt;
}

void limit_start_up() { ::alarm(alarm_seconds()); }

int run_worker(Library& library) {
  Worker worker(library);
  if (Failure failure = worker.serve()) {
    std::fprintf(stderr, "worker of rank %d: %s\n", library.rank(), failure->c_str());
    return 1;
  }
  return 0;
}

}  // namespace treering::perf
