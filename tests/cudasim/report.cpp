#include "report.hpp"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <time.h>
#include <unistd.h>

#include "block.hpp"
#include "lazy.hpp"

namespace cudasim {
namespace {

struct Running {
  std::mutex mutex;
  std::set<Block*> blocks;
  std::set<const std::string*> notes;
};
constinit Lazy<Running> the_running;
Running& running() { return the_running.get(); }
std::atomic<bool> reported{false};

void nap_ms(long ms) {
  const timespec time{0, ms * 1000 * 1000};
  nanosleep(&time, nullptr);
}

void print(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

}  // namespace

std::string text(dim3 v) {
  return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

std::string text(Where where) {
  const char* slash = std::strrchr(where.file, '/');
  return std::string(slash != nullptr ? slash + 1 : where.file) + ":" + std::to_string(where.line);
}

std::string Block::describe() const {
  return kernel_name(launch_->kernel) + ", device " + std::to_string(launch_->device) + ", block " +
         text(dim3(index_.x, index_.y, index_.z)) + " of " + text(launch_->grid);
}

std::string Block::describe_thread() const {
  std::string line = describe();
  if (current_ != nullptr) {
    const uint3 i = current_->index;
    line += ", thread " + text(dim3(i.x, i.y, i.z));
  }
  return line;
}

std::string Block::describe_waits() const {
  std::map<std::string, int> groups;
  for (unsigned i = 0; i < launch_->threads(); ++i) {
    const Thread& thread = *threads_[i];
    switch (thread.state) {
      case State::kReady:
        ++groups["ready"];
        break;
      case State::kDone:
        ++groups["ended"];
        break;
      case State::kSpinning:
        ++groups["spinning (" + text(thread.where) + ")"];
        break;
      case State::kWarp:
        ++groups["in a warp function (" + text(thread.where) + ")"];
        break;
      case State::kBarrier: {
        const unsigned expected = barriers_[thread.barrier].expected;
        ++groups["at barrier " + std::to_string(thread.barrier) +
                 (expected != 0 ? " of " + std::to_string(expected) : "") + " (" +
                 text(thread.where) + ")"];
        break;
      }
    }
  }
  std::string line;
  for (const auto& [what, count] : groups) {
    line += (line.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  }
  return line;
}

void register_block(Block* block) {
  const std::lock_guard lock(running().mutex);
  running().blocks.insert(block);
}
void unregister_block(Block* block) {
  const std::lock_guard lock(running().mutex);
  running().blocks.erase(block);
}

bool hang_reported() { return reported.load(std::memory_order_relaxed); }

namespace {

std::string line_of(const Block& block) {
  return "  " + block.describe() + ": " + block.describe_waits();
}

[[noreturn]] void wait_for_the_end() {
  for (;;) nap_ms(100);
}

// The first to report says what happened, in its own line too if it has one.
[[noreturn]] void report(const Block* block, const char* what) {
  if (reported.exchange(true, std::memory_order_relaxed)) {
    if (block != nullptr) print(line_of(*block));
    wait_for_the_end();
  }
  print("cudasim: hang: " + std::string(what) + " (process " + std::to_string(getpid()) + ")");
  if (block != nullptr) print(line_of(*block));
  nap_ms(200);  // the other blocks print theirs
  const std::lock_guard lock(running().mutex);
  for (const std::string* note : running().notes) print("  " + *note);
  std::abort();
}

}  // namespace

void report_hang(Block& block, const char* what) { report(&block, what); }
void report_hang(const char* what) { report(nullptr, what); }

void join_hang_report(Block& block) {
  print(line_of(block));
  wait_for_the_end();
}

Note::Note(std::string line) : line_(std::move(line)) {
  const std::lock_guard lock(running().mutex);
  running().notes.insert(&line_);
}
Note::~Note() {
  const std::lock_guard lock(running().mutex);
  running().notes.erase(&line_);
}
void Note::change(std::string line) {
  const std::lock_guard lock(running().mutex);
  line_ = std::move(line);
}

void fault(const char* format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  print("cudasim: fault: " + std::string(message));
  if (this_block != nullptr) print("  " + this_block->describe_thread());
  std::abort();
}

}  // namespace cudasim
