// A fiber: a stack of its own and the place where it stopped. Exactly one fiber of an OS thread
// runs; it hands over to another by name. On x86-64 a switch is 14 instructions, elsewhere
// ucontext's two system calls. AddressSanitizer and ThreadSanitizer are told of each switch if
// they are in the program; ThreadSanitizer sees fibers as threads that nothing orders.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(CUDASIM_UCONTEXT)
#define CUDASIM_UCONTEXT 1
#endif
#ifdef CUDASIM_UCONTEXT
#include <ucontext.h>
#endif

namespace cudasim {

class Fiber {
 public:
  using Entry = void (*)(void* argument);

  Fiber();                             // the OS thread that calls
  Fiber(Entry entry, void* argument);  // a new stack; `entry` must never return
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  static void switch_to(Fiber& from, Fiber& to);

 private:
  static void start(Fiber* fiber);
  static void start_halves(unsigned low, unsigned high);

#ifdef CUDASIM_UCONTEXT
  ucontext_t context_{};
#else
  void* stack_pointer_ = nullptr;
#endif
  std::byte* stack_ = nullptr;  // lowest usable address
  std::size_t stack_bytes_ = 0;
  std::byte* mapping_ = nullptr;  // null: the OS thread's own stack
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  void* tsan_fiber_ = nullptr;
};

// The edges that ThreadSanitizer cannot see by itself; nothing without it.
void tsan_release(void* address);
void tsan_acquire(void* address);
bool has_sanitizer();

}  // namespace cudasim
