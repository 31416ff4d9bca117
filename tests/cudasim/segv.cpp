// Explains a wild access of a kernel: how far from which allocation.
#include <cstdio>
#include <cstdlib>
#include <signal.h>

#include "block.hpp"
#include "fiber.hpp"
#include "memory.hpp"

namespace cudasim {
namespace {

constexpr std::size_t kSignalStackBytes = std::size_t{64} << 10;

void say_where(std::uintptr_t address) {
  Lock lock(runtime().mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;
  auto after = allocations().upper_bound(address);
  const bool has_next = after != allocations().end();
  const bool has_previous = after != allocations().begin();
  const std::size_t to_next = has_next ? after->first - address : ~std::size_t{0};
  const Place previous = has_previous ? std::prev(after)->second.place : Place{};
  const std::size_t past =
      has_previous ? address - previous.base - previous.bytes : ~std::size_t{0};
  if (has_previous && past <= to_next && past < kWindowBytes) {
    std::fprintf(stderr, "  %zu bytes past the end of an allocation of %zu bytes, device %d\n",
                 past, previous.bytes, previous.device);
  } else if (has_next && to_next < kWindowBytes) {
    std::fprintf(stderr, "  %zu bytes before an allocation of %zu bytes, device %d\n", to_next,
                 after->second.place.bytes, after->second.place.device);
  }
}

void on_segv(int signal_number, siginfo_t* info, void*) {
  std::fprintf(stderr, "cudasim: fault: wild access at %p\n", info->si_addr);
  say_where(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (this_block != nullptr) {
    std::fprintf(stderr, "  %s\n", this_block->describe_thread().c_str());
  }
  signal(signal_number, SIG_DFL);  // the access is tried again, and ends the process
}

}  // namespace

void explain_segv() {
  if (has_sanitizer()) return;  // it does the same, with a stack trace
  stack_t stack{};
  stack.ss_sp = std::malloc(kSignalStackBytes);  // for as long as the thread: the process's end
  stack.ss_size = kSignalStackBytes;
  sigaltstack(&stack, nullptr);
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction before {};
    sigaction(SIGSEGV, nullptr, &before);
    if (before.sa_handler != SIG_DFL) return;
    struct sigaction action {};
    action.sa_sigaction = &on_segv;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
  });
}

}  // namespace cudasim
