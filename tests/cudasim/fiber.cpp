#include "fiber.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <sys/mman.h>

// Present if the program is built with the sanitizer. This file itself must not be built with
// ThreadSanitizer: its functions begin on one stack and end on another.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom,
                                                  std::size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom,
                                                   std::size_t* bytes);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
}

#ifndef CUDASIM_UCONTEXT
// void cudasim_switch(void** save, void* load): puts the registers that a callee must keep on the
// stack, stores the stack pointer to *save, and takes up where `load` stopped.
extern "C" void cudasim_switch(void** save, void* load);
asm(R"(
  .text
  .globl cudasim_switch
  .hidden cudasim_switch
  .type cudasim_switch, @function
cudasim_switch:
  .cfi_startproc
  pushq %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbp, 0
  pushq %rbx
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbx, 0
  pushq %r12
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r12, 0
  pushq %r13
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r13, 0
  pushq %r14
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r14, 0
  pushq %r15
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r15, 0
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  .cfi_adjust_cfa_offset -8
  popq %r14
  .cfi_adjust_cfa_offset -8
  popq %r13
  .cfi_adjust_cfa_offset -8
  popq %r12
  .cfi_adjust_cfa_offset -8
  popq %rbx
  .cfi_adjust_cfa_offset -8
  popq %rbp
  .cfi_adjust_cfa_offset -8
  ret
  .cfi_endproc
  .size cudasim_switch, .-cudasim_switch

  # A new fiber begins here, with its Fiber in rbx and the function to call in r12. The frame has
  # no caller: debuggers stop here.
  .globl cudasim_begin
  .hidden cudasim_begin
  .type cudasim_begin, @function
cudasim_begin:
  .cfi_startproc
  .cfi_undefined %rip
  movq %rbx, %rdi
  call *%r12
  ud2
  .cfi_endproc
  .size cudasim_begin, .-cudasim_begin
)");
extern "C" void cudasim_begin();
#endif

namespace cudasim {
namespace {

constexpr std::size_t kGuardBytes = 4096;

// Kernels keep little on their stack; sanitizers and printf need more. Pages that nobody touches
// cost nothing.
std::size_t stack_bytes() {
  return has_sanitizer() ? std::size_t{256} << 10 : std::size_t{64} << 10;
}

}  // namespace

bool has_sanitizer() {
  return __sanitizer_start_switch_fiber != nullptr || __tsan_create_fiber != nullptr;
}
void tsan_release(void* address) {
  if (__tsan_release != nullptr) __tsan_release(address);
}
void tsan_acquire(void* address) {
  if (__tsan_acquire != nullptr) __tsan_acquire(address);
}

Fiber::Fiber() {
  pthread_attr_t attributes;
  void* bottom = nullptr;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &bottom, &stack_bytes_);
    pthread_attr_destroy(&attributes);
  }
  stack_ = static_cast<std::byte*>(bottom);
  if (__tsan_get_current_fiber != nullptr) tsan_fiber_ = __tsan_get_current_fiber();
}

Fiber::Fiber(Entry entry, void* argument) : entry_(entry), argument_(argument) {
  stack_bytes_ = stack_bytes();
  void* mapping = mmap(nullptr, kGuardBytes + stack_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    std::perror("cudasim: no memory for the stack of a CUDA thread");
    std::abort();
  }
  mapping_ = static_cast<std::byte*>(mapping);
  stack_ = mapping_ + kGuardBytes;
  // Beyond some ten thousand threads the kernel has no more mappings to give; then without a guard.
  (void)mprotect(mapping_, kGuardBytes, PROT_NONE);
#ifdef CUDASIM_UCONTEXT
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = stack_bytes_;
  context_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::start_halves), 2,
              static_cast<unsigned>(self), static_cast<unsigned>(std::uint64_t{self} >> 32));
#else
  // What cudasim_switch pops: r15, r14, r13, r12, rbx, rbp, the address to return to. The stack is
  // aligned to 16 bytes where cudasim_begin calls.
  auto* top = reinterpret_cast<void**>(stack_ + stack_bytes_) - 2;
  top[-1] = reinterpret_cast<void*>(&cudasim_begin);
  top[-2] = nullptr;                                 // rbp
  top[-3] = this;                                    // rbx
  top[-4] = reinterpret_cast<void*>(&Fiber::start);  // r12
  top[-5] = top[-6] = top[-7] = nullptr;
  stack_pointer_ = top - 7;
#endif
  if (__tsan_create_fiber != nullptr) tsan_fiber_ = __tsan_create_fiber(0);
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
  if (__tsan_destroy_fiber != nullptr) __tsan_destroy_fiber(tsan_fiber_);
  munmap(mapping_, kGuardBytes + stack_bytes_);
}

void Fiber::start(Fiber* fiber) {
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
  }
  fiber->entry_(fiber->argument_);
  std::abort();
}

void Fiber::start_halves(unsigned low, unsigned high) {
  start(reinterpret_cast<Fiber*>(std::uintptr_t{low} | std::uint64_t{high} << 32));
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  constexpr unsigned kNoSync = 1;
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.stack_bytes_);
  }
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(to.tsan_fiber_, kNoSync);
#ifdef CUDASIM_UCONTEXT
  swapcontext(&from.context_, &to.context_);
#else
  cudasim_switch(&from.stack_pointer_, to.stack_pointer_);
#endif
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(from.fake_stack_, nullptr, nullptr);
  }
}

}  // namespace cudasim
