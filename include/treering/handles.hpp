// Streams, events, memory, operators and groups of the C++ API: one owner each, moved and never
// copied.
//
// A destructor releases what is left and has nobody to tell an error to; destroy() does the same
// and answers. A moved-from object owns nothing; calls on it answer an error or do nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "treering/element.hpp"
#include "treering/result.hpp"
#include "treering/treering.h"

namespace tr {

namespace detail {
// Owns one handle of the C API; Release is its tr_*_destroy.
template <class H, tr_result_t (*Release)(H)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(H raw) : raw_(raw) {}
  Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, H{})) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      (void)destroy();
      raw_ = std::exchange(other.raw_, H{});
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { (void)destroy(); }

  H get() const noexcept { return raw_; }
  H release() noexcept { return std::exchange(raw_, H{}); }
  Status destroy() {
    if (raw_ == H{}) return {};
    return Status::of(Release(release()));
  }

 private:
  H raw_{};
};
}  // namespace detail

class Stream;

// Where an operation is enqueued; owns nothing. The default blocks on the calling thread.
class StreamRef {
 public:
  StreamRef() = default;
  StreamRef(tr_stream_t raw) : raw_(raw) {}  // NOLINT(google-explicit-constructor)
  StreamRef(const Stream& stream);           // NOLINT(google-explicit-constructor)
  tr_stream_t get() const noexcept { return raw_; }

 private:
  tr_stream_t raw_ = nullptr;
};

class Event {
 public:
  static Result<Event> create() {
    tr_event_t raw = nullptr;
    if (const auto code = tr_event_create(&raw)) return Error::last(code);
    return Event(raw);
  }
  // Marks what is on the stream now; a second record moves the mark.
  Status record(StreamRef stream) { return Status::of(tr_event_record(get(), stream.get())); }
  Result<bool> done() const {
    int done = 0;
    if (const auto code = tr_event_query(get(), &done)) return Error::last(code);
    return done != 0;
  }
  Status synchronize() const { return Status::of(tr_event_synchronize(get())); }
  Status destroy() { return handle_.destroy(); }
  tr_event_t get() const noexcept { return handle_.get(); }

 private:
  explicit Event(tr_event_t raw) : handle_(raw) {}
  detail::Handle<tr_event_t, tr_event_destroy> handle_;
};

// Operations are enqueued and complete in order: a host stream, or a caller's CUDA stream. Buffers
// given to it must stay until the stream has been synchronized. The destructor of a host stream
// synchronizes.
class Stream {
 public:
  static Result<Stream> create() {
    tr_stream_t raw = nullptr;
    if (const auto code = tr_stream_create(&raw)) return Error::last(code);
    return Stream(raw);
  }
  // For calls on device memory: a cudaStream_t, which stays the caller's and outlives this.
  static Result<Stream> from_cuda(void* cuda_stream) {
    tr_stream_t raw = nullptr;
    if (const auto code = tr_stream_from_cuda(&raw, cuda_stream)) return Error::last(code);
    return Stream(raw);
  }
  // The first error of the operations on the stream, if there was one.
  Status synchronize() const { return Status::of(tr_stream_synchronize(get())); }
  Result<bool> done() const {
    int done = 0;
    if (const auto code = tr_stream_query(get(), &done)) return Error::last(code);
    return done != 0;
  }
  // What is enqueued from now on starts after the event.
  Status wait(const Event& event) { return Status::of(tr_stream_wait_event(get(), event.get())); }
  Status destroy() { return handle_.destroy(); }
  tr_stream_t get() const noexcept { return handle_.get(); }

 private:
  explicit Stream(tr_stream_t raw) : handle_(raw) {}
  detail::Handle<tr_stream_t, tr_stream_destroy> handle_;
};

inline StreamRef::StreamRef(const Stream& stream) : raw_(stream.get()) {}

// `count` elements of page-aligned memory that peers can map once it is registered
// (Communicator::register_buffer). Contents start undefined. Itself a Buffer.
template <Element T>
class HostBuffer {
 public:
  static Result<HostBuffer> allocate(std::size_t count) {
    void* raw = nullptr;
    if (const auto code = tr_mem_alloc(&raw, count * sizeof(T))) return Error::last(code);
    return HostBuffer(static_cast<T*>(raw), count);
  }
  HostBuffer() = default;
  HostBuffer(HostBuffer&& other) noexcept
      : memory_(std::move(other.memory_)), count_(std::exchange(other.count_, 0)) {}
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }

  T* data() noexcept { return static_cast<T*>(memory_.get()); }
  const T* data() const noexcept { return static_cast<const T*>(memory_.get()); }
  std::size_t size() const noexcept { return count_; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + count_; }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + count_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  std::span<T> span() noexcept { return {data(), count_}; }
  std::span<const T> span() const noexcept { return {data(), count_}; }

 private:
  HostBuffer(T* raw, std::size_t count) : memory_(raw), count_(count) {}

  detail::Handle<void*, tr_mem_free> memory_;
  std::size_t count_ = 0;
};

// A reduction operator by name; owns nothing.
class Op {
 public:
  constexpr explicit Op(tr_op_t raw) : raw_(raw) {}
  constexpr tr_op_t get() const noexcept { return raw_; }

 private:
  tr_op_t raw_;
};
inline constexpr Op kSum{TR_SUM};
inline constexpr Op kProd{TR_PROD};
inline constexpr Op kMin{TR_MIN};
inline constexpr Op kMax{TR_MAX};
inline constexpr Op kAvg{TR_AVG};

enum class Commutes { kNo, kYes };

// An operator of the caller's own. Must outlive the operations that use it. Every rank makes its
// own.
class RedOp {
 public:
  // Sum of factor * input, each rank with its own factor; floating-point types only.
  static Result<RedOp> premul_sum(double factor) {
    tr_op_t raw = kNone;
    if (const auto code = tr_op_create_premul_sum(&raw, factor)) return Error::last(code);
    return RedOp(raw, {});
  }
  // combine(T lower, T higher) -> T: an associative function of two elements, called on the thread
  // that makes progress; it must not throw. Commutes::kNo: folded in rank order. T is fixed by the
  // caller; an operation on elements of another wire type must not use this operator.
  template <Element T, class F>
  requires std::is_invocable_r_v<T, const F&, T, T>
  static Result<RedOp> create(F combine, Commutes commutes) {
    auto owned = std::make_shared<const F>(std::move(combine));
    const tr_combine_fn call = [](void* acc, const void* in, std::size_t count, tr_type_t,
                                  void* user) noexcept {
      const F& f = *static_cast<const F*>(user);
      auto* a = static_cast<T*>(acc);
      const auto* b = static_cast<const T*>(in);
      for (std::size_t i = 0; i < count; ++i) a[i] = f(a[i], b[i]);
    };
    tr_op_t raw = kNone;
    void* user = const_cast<F*>(owned.get());
    if (const auto code = tr_op_create(&raw, call, commutes == Commutes::kYes, user)) {
      return Error::last(code);
    }
    return RedOp(raw, std::move(owned));
  }

  RedOp(RedOp&& other) noexcept
      : raw_(std::exchange(other.raw_, kNone)), combine_(std::move(other.combine_)) {}
  RedOp& operator=(RedOp&& other) noexcept {
    if (this != &other) {
      (void)destroy();
      raw_ = std::exchange(other.raw_, kNone);
      combine_ = std::move(other.combine_);
    }
    return *this;
  }
  ~RedOp() { (void)destroy(); }
  Status destroy() {
    if (raw_ == kNone) return {};
    return Status::of(tr_op_destroy(std::exchange(raw_, kNone)));
  }
  operator Op() const noexcept { return Op(raw_); }  // NOLINT(google-explicit-constructor)

 private:
  static constexpr tr_op_t kNone = -1;
  RedOp(tr_op_t raw, std::shared_ptr<const void> combine)
      : raw_(raw), combine_(std::move(combine)) {}

  tr_op_t raw_ = kNone;
  std::shared_ptr<const void> combine_;  // what the C operator's `user` points to
};

// Operations made while it lives are issued together by end(), and progress together:
//   tr::GroupGuard group;
//   TRY(comm.send(mine, right)); TRY(comm.recv(theirs, left));
//   TRY(group.end());
// Left without end() (an early return), the destructor ends the group and its error is lost.
class GroupGuard {
 public:
  GroupGuard() : started_(Status::of(tr_group_start())), open_(started_.ok()) {}
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;
  ~GroupGuard() { (void)end(); }
  // The first error of start, of the calls inside, or of the operations themselves.
  Status end() {
    if (!std::exchange(open_, false)) return started_;
    return Status::of(tr_group_end());
  }

 private:
  Status started_;
  bool open_;
};

}  // namespace tr
