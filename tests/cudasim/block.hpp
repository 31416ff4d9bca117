// How a block runs: one OS thread, a fiber for each CUDA thread, barriers and warps as queues.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cudasim.h"
#include "fiber.hpp"

namespace cudasim {

// One kernel launch.
struct Launch {
  std::uint64_t number = 0;
  int device = 0;
  const void* kernel = nullptr;
  dim3 grid{};
  dim3 block{};
  std::size_t shared_bytes = 0;
  std::uint32_t reachable = ~0u;  // devices whose memory it may use
  std::function<void()> body;

  unsigned threads() const { return block.x * block.y * block.z; }
  std::uint64_t blocks() const { return std::uint64_t{grid.x} * grid.y * grid.z; }
};
std::string kernel_name(const void* kernel);
std::string text(dim3 v);       // "(1,0,0)"
std::string text(Where where);  // "ring.cu:12"

class Block {
 public:
  Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Runs one block to its end on the calling OS thread.
  void run(const Launch& launch, uint3 index);

  int barrier(unsigned id, unsigned threads, bool predicate, Where where);
  std::uint64_t warp(WarpOp op, unsigned mask, std::uint64_t value, int source, Where where);
  void pause(Where where);
  void before_access();
  void after_post();
  std::uint64_t random();

  void* shared() const { return shared_; }
  std::size_t shared_bytes() const { return launch_->shared_bytes; }
  std::string describe() const;         // "kernel f, device 0, block (1,0,0) of (2,1,1)"
  std::string describe_thread() const;  // "..., thread (37,0,0)"
  std::string describe_waits() const;   // "127 threads at barrier 0 (x.cu:12), 1 spinning (x.cu:9)"

 private:
  enum class State : std::uint8_t { kReady, kSpinning, kBarrier, kWarp, kDone };
  struct Thread {
    Block* block = nullptr;
    unsigned number = 0;
    uint3 index{};
    State state = State::kDone;
    Where where{};
    unsigned barrier = 0;
    WarpOp op{};
    unsigned mask = 0;
    int source = 0;
    std::uint64_t value = 0;
    std::uint64_t result = 0;
    Thread* next = nullptr;  // behind it at the same barrier
    std::unique_ptr<Fiber> fiber;
  };
  struct Barrier {  // (a list, because memory must not be allocated by one thread and freed by
                    // another)
    Thread* first = nullptr;
    Thread* last = nullptr;
    unsigned waiting = 0;
    unsigned expected = 0;
    int count = 0;  // of true predicates
    bool phase = false;
    std::array<char, 2> sync{};  // addresses for ThreadSanitizer, one a phase
  };
  struct Warp {
    unsigned live = 0;     // lanes that have not ended
    unsigned waiting = 0;  // lanes inside a warp function
    // By the lowest lane of the mask, so that groups of one warp do not order each other.
    std::array<bool, 32> phase{};
    std::array<std::array<char, 2>, 32> sync{};
  };

  static void thread_main(void* argument);
  void finish();
  void make_ready(Thread& thread);
  void queue(Thread& thread);
  void run_next();        // some ready thread goes on; the current one is queued somewhere
  void maybe_give_way();  // the current thread may queue behind others when a seed is set
  void open_if_full(Barrier& barrier);
  void check_whole_warps(const Barrier& barrier);
  void finish_warp_op(unsigned warp, unsigned lanes);
  void idle_round();
  [[noreturn]] void deadlock();

  const Launch* launch_ = nullptr;
  uint3 index_{};
  Fiber host_;  // the OS thread itself
  std::vector<std::unique_ptr<Thread>> threads_;
  std::array<Barrier, 16> barriers_;
  std::array<Warp, 32> warps_;
  Thread* current_ = nullptr;
  unsigned live_ = 0;
  void* shared_ = nullptr;

  // The ready threads, a ring.
  std::array<Thread*, 1024> ready_{};
  unsigned ready_head_ = 0;
  unsigned ready_count_ = 0;

  unsigned pauses_ = 0;  // in a row
  unsigned idle_rounds_ = 0;
  double stuck_since_s_ = 0;
  std::uint64_t random_state_ = 1;
  bool shuffled_ = false;
  char start_sync_ = 0;
  char end_sync_ = 0;
};

extern thread_local constinit Block* this_block;  // null on a host thread

double now_s();

}  // namespace cudasim
