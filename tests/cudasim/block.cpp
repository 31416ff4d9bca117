#include "block.hpp"

#include <bit>
#include <cstdlib>
#include <sched.h>
#include <time.h>

#include "report.hpp"
#include "settings.hpp"

thread_local constinit uint3 threadIdx{};
thread_local constinit uint3 blockIdx{};
thread_local constinit dim3 blockDim{};
thread_local constinit dim3 gridDim{};

namespace cudasim {

thread_local constinit Block* this_block = nullptr;

namespace {

constexpr std::byte kGarbage{0xCD};

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

void nap(long us) {
  const timespec time{0, us * 1000};
  nanosleep(&time, nullptr);
}

}  // namespace

double now_s() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Block::Block() = default;

void Block::run(const Launch& launch, uint3 index) {
  launch_ = &launch;
  index_ = index;
  blockIdx = index;
  blockDim = launch.block;
  gridDim = launch.grid;
  reachable_devices = launch.reachable;
  // Dynamic shared memory is a heap block of the exact size, so that AddressSanitizer sees its end.
  if (launch.shared_bytes != 0) {
    if (posix_memalign(&shared_, 128, launch.shared_bytes) != 0) fault("no shared memory");
    std::memset(shared_, std::to_integer<int>(kGarbage), launch.shared_bytes);
  }
  const std::uint64_t number =
      index.x + std::uint64_t{launch.grid.x} * (index.y + std::uint64_t{launch.grid.y} * index.z);
  shuffled_ = settings().seed != 0;
  random_state_ = mix(settings().seed ^ mix(launch.number ^ mix(number))) | 1;

  live_ = launch.threads();
  for (unsigned i = 0; i < live_; ++i) {
    if (i == threads_.size()) {
      threads_.push_back(std::make_unique<Thread>());
      threads_[i]->block = this;
      threads_[i]->number = i;
      threads_[i]->fiber = std::make_unique<Fiber>(&Block::thread_main, threads_[i].get());
    }
    threads_[i]->index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    if (i % 32 == 0) warps_[i / 32].live = 0;
    warps_[i / 32].live |= 1u << i % 32;
    make_ready(*threads_[i]);
  }
  pauses_ = idle_rounds_ = 0;
  stuck_since_s_ = 0;
  this_block = this;
  register_block(this);
  tsan_release(&start_sync_);
  current_ = nullptr;
  run_next();  // comes back when all threads have ended
  tsan_acquire(&end_sync_);
  unregister_block(this);
  this_block = nullptr;
  std::free(shared_);
  shared_ = nullptr;
}

// A fiber outlives its block: the next block on this OS thread uses it again.
void Block::thread_main(void* argument) {
  Block& block = *static_cast<Thread*>(argument)->block;
  for (;;) {
    tsan_acquire(&block.start_sync_);
    block.launch_->body();
    tsan_release(&block.end_sync_);
    block.finish();
  }
}

void Block::finish() {
  Thread& me = *current_;
  me.state = State::kDone;
  --live_;
  pauses_ = idle_rounds_ = 0;
  // Those who wait for "all threads" or "all lanes" mean all that have not ended.
  Warp& warp = warps_[me.number / 32];
  warp.live &= ~(1u << me.number % 32);
  for (unsigned rest = warp.waiting; rest != 0;) {
    const Thread& other = *threads_[me.number / 32 * 32 + std::countr_zero(rest)];
    const unsigned lanes = other.mask & warp.live;
    rest &= ~lanes;
    if ((warp.waiting & lanes) == lanes) finish_warp_op(me.number / 32, lanes);
  }
  for (Barrier& barrier : barriers_) {
    if (barrier.waiting != 0 && barrier.expected == 0) open_if_full(barrier);
  }
  run_next();
}

void Block::make_ready(Thread& thread) {
  thread.state = State::kReady;
  queue(thread);
}

void Block::queue(Thread& thread) {
  ready_[(ready_head_ + ready_count_++) % ready_.size()] = &thread;
}

void Block::run_next() {
  Fiber& from = current_ != nullptr ? *current_->fiber : host_;
  if (ready_count_ == 0) {
    if (live_ != 0) deadlock();
    current_ = nullptr;
    Fiber::switch_to(from, host_);
    return;
  }
  if (shuffled_) {
    const unsigned chosen = static_cast<unsigned>(random() % ready_count_);
    std::swap(ready_[ready_head_], ready_[(ready_head_ + chosen) % ready_.size()]);
  }
  Thread* next = ready_[ready_head_];
  ready_head_ = (ready_head_ + 1) % ready_.size();
  --ready_count_;
  if (next == current_) return;
  current_ = next;
  threadIdx = next->index;
  Fiber::switch_to(from, *next->fiber);
}

void Block::maybe_give_way() {
  if (!shuffled_ || random() % 4 != 0) return;
  make_ready(*current_);
  run_next();
}

int Block::barrier(unsigned id, unsigned threads, bool predicate, Where where) {
  if (id >= barriers_.size()) fault("barrier %u: a block has 16", id);
  if (threads % 32 != 0 && threads != launch_->threads()) {
    fault("barrier %u of %u threads (%s): not a multiple of 32", id, threads, text(where).c_str());
  }
  if (threads >= launch_->threads()) {
    if (threads > launch_->threads()) fault("barrier %u of %u threads: too many", id, threads);
    threads = 0;  // all that have not ended
  }
  Barrier& barrier = barriers_[id];
  if (barrier.waiting != 0 && barrier.expected != threads) {
    const Thread& other = *barrier.first;
    fault("barrier %u: threads disagree on how many meet, %u (%s) and %u (%s); 0: all", id,
          barrier.expected, text(other.where).c_str(), threads, text(where).c_str());
  }
  Thread& me = *current_;
  me.barrier = id;
  me.where = where;
  me.state = State::kBarrier;
  char* const sync = &barrier.sync[barrier.phase];
  tsan_release(sync);
  barrier.expected = threads;
  barrier.count += predicate ? 1 : 0;
  (barrier.waiting++ == 0 ? barrier.first : barrier.last->next) = &me;
  barrier.last = &me;
  me.next = nullptr;
  open_if_full(barrier);
  run_next();  // if it has opened, all of us are ready now
  tsan_acquire(sync);
  return static_cast<int>(me.result);
}

void Block::open_if_full(Barrier& barrier) {
  const unsigned expected = barrier.expected != 0 ? barrier.expected : live_;
  if (barrier.waiting < expected) return;
  if (barrier.expected != 0) check_whole_warps(barrier);
  for (Thread* thread = barrier.first; thread != nullptr; thread = thread->next) {
    thread->result = static_cast<std::uint64_t>(barrier.count);
    make_ready(*thread);
  }
  barrier.waiting = 0;
  barrier.count = 0;
  barrier.phase = !barrier.phase;
}

// On a GPU whole warps arrive at a named barrier.
void Block::check_whole_warps(const Barrier& barrier) {
  std::array<unsigned, 32> lanes{};
  for (const Thread* thread = barrier.first; thread != nullptr; thread = thread->next)
    lanes[thread->number / 32] |= 1u << thread->number % 32;
  for (unsigned i = 0; i < lanes.size(); ++i) {
    if (lanes[i] != 0 && lanes[i] != warps_[i].live) {
      const Thread& any = *barrier.first;
      fault("barrier %u (%s): of warp %u only lanes 0x%08x came", any.barrier,
            text(any.where).c_str(), i, lanes[i]);
    }
  }
}

std::uint64_t Block::warp(WarpOp op, unsigned mask, std::uint64_t value, int source, Where where) {
  Thread& me = *current_;
  Warp& warp = warps_[me.number / 32];
  const unsigned bit = 1u << me.number % 32;
  if ((mask & bit) == 0) {
    fault("%s: lane %u calls a warp function without being in its mask 0x%08x", text(where).c_str(),
          me.number % 32, mask);
  }
  const unsigned lanes = mask & warp.live;
  if (const unsigned there = warp.waiting & lanes; there != 0) {
    const Thread& other = *threads_[me.number / 32 * 32 + std::countr_zero(there)];
    if (other.mask != mask || other.op != op) {
      fault(
          "warp functions that do not match: lane %u at %s with mask 0x%08x, lane %u at %s with "
          "mask 0x%08x",
          other.number % 32, text(other.where).c_str(), other.mask, me.number % 32,
          text(where).c_str(), mask);
    }
  }
  me.op = op;
  me.mask = mask;
  me.value = value;
  me.source = source;
  me.where = where;
  char* sync = nullptr;
  if (op == WarpOp::kSync || op == WarpOp::kBallotSync) {
    const int group = std::countr_zero(mask);
    sync = &warp.sync[group][warp.phase[group]];
    tsan_release(sync);
  }
  warp.waiting |= bit;
  if ((warp.waiting & lanes) == lanes) {
    finish_warp_op(me.number / 32, lanes);
    maybe_give_way();
  } else {
    me.state = State::kWarp;
    run_next();
  }
  if (sync != nullptr) tsan_acquire(sync);
  return me.result;
}

void Block::finish_warp_op(unsigned number, unsigned lanes) {
  Warp& warp = warps_[number];
  unsigned ballot = 0;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if (threads_[number * 32 + lane]->value != 0) ballot |= 1u << lane;
  }
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    Thread& thread = *threads_[number * 32 + std::countr_zero(rest)];
    thread.result = ballot;
    if (thread.op == WarpOp::kShuffle) {
      if ((lanes >> thread.source & 1) == 0) {
        fault("%s: lane %u shuffles from lane %d, which does not take part",
              text(thread.where).c_str(), thread.number % 32, thread.source);
      }
      thread.result = threads_[number * 32 + thread.source]->value;
    }
    if (thread.state == State::kWarp) make_ready(thread);
    if (rest == lanes) {
      bool& phase = warp.phase[std::countr_zero(thread.mask)];
      phase = !phase;
    }
  }
  warp.waiting &= ~lanes;
}

void Block::pause(Where where) {
  Thread& me = *current_;
  me.state = State::kSpinning;
  me.where = where;
  queue(me);
  if (++pauses_ >= ready_count_) {
    pauses_ = 0;
    idle_round();
  }
  run_next();
  me.state = State::kReady;
}

// As many pauses as threads that can run, and nothing was posted meanwhile: let other blocks,
// kernels and processes run. (A wait may contain warp functions and barriers: they are no
// progress.)
void Block::idle_round() {
  if (hang_reported()) join_hang_report(*this);
  if (idle_rounds_++ == 0) {
    stuck_since_s_ = now_s();
  } else if (idle_rounds_ % 64 == 0 && now_s() - stuck_since_s_ > settings().hang_s) {
    report_hang(*this, "nothing but spinning");
  }
  if (idle_rounds_ % 256 == 0) {
    nap(50);
  } else {
    sched_yield();
  }
}

void Block::before_access() { maybe_give_way(); }

void Block::after_post() {
  pauses_ = idle_rounds_ = 0;
  if (!shuffled_) return;
  if (random() % 64 == 0) nap(static_cast<long>(random() % 200));
  maybe_give_way();
}

std::uint64_t Block::random() {  // xorshift64
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return random_state_ >> 11;
}

void Block::deadlock() { report_hang(*this, "no thread of the block can go on"); }

int barrier(unsigned id, unsigned threads, bool predicate, Where where) {
  if (this_block == nullptr) fault("%s: a barrier outside a kernel", text(where).c_str());
  return this_block->barrier(id, threads, predicate, where);
}
std::uint64_t warp(WarpOp op, unsigned mask, std::uint64_t value, int source, Where where) {
  if (this_block == nullptr) fault("%s: a warp function outside a kernel", text(where).c_str());
  return this_block->warp(op, mask, value, source, where);
}
void pause(Where where) {
  if (this_block != nullptr) {
    this_block->pause(where);
  } else {
    sched_yield();
  }
}
void before_access() {
  if (this_block != nullptr) this_block->before_access();
}
void after_post() {
  if (this_block != nullptr) this_block->after_post();
}
bool coin() { return this_block != nullptr && (this_block->random() & 1) != 0; }
void* dynamic_shared() { return this_block != nullptr ? this_block->shared() : nullptr; }
std::size_t dynamic_shared_bytes() {
  return this_block != nullptr ? this_block->shared_bytes() : 0;
}

}  // namespace cudasim
