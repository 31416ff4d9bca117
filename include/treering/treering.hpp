// Treering's C++20 API: owners and typed buffers over treering.h, header only.
//
//   auto comm = tr::Communicator::from_env();
//   if (!comm) { std::fputs(comm.error().message.c_str(), stderr); return 1; }
//   std::vector<float> x(1000, 1.0f);
//   if (auto done = comm.value().all_reduce(x, tr::kSum); !done) ...
//
// Buffers are contiguous ranges (std::vector, std::array, std::span, tr::HostBuffer); element type
// and count are taken from them. Shapes that cannot be right are refused here with
// TR_INVALID_ARGUMENT, and nothing happens, but only on the rank that made the mistake: the others
// wait for it.
//
// Without a stream a call blocks until this rank's part is done. With one it returns at once: keep
// the buffers until the stream is synchronized. Errors, thread safety and the meaning of each
// operation are those of the C API.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "treering/element.hpp"
#include "treering/handles.hpp"
#include "treering/result.hpp"
#include "treering/treering.h"

namespace tr {

// How a buffer is cut into one part per rank, for the v-variants: part q is counts[q] elements from
// displs[q] on. No displs: parts lie one after another. Views; read during the call only.
struct Parts {
  std::span<const std::uint64_t> counts;
  std::span<const std::uint64_t> displs = {};
};

// Memory (of a HostBuffer, say) that every rank of a communicator can reach. Destroy it before the
// communicator and before the memory; destroying waits for this rank's operations only.
class Window {
 public:
  Window() = default;
  Window(Window&& other) noexcept : comm_(other.comm_), raw_(std::exchange(other.raw_, nullptr)) {}
  Window& operator=(Window&& other) noexcept {
    if (this != &other) {
      (void)destroy();
      comm_ = other.comm_;
      raw_ = std::exchange(other.raw_, nullptr);
    }
    return *this;
  }
  ~Window() { (void)destroy(); }
  Status destroy() {
    if (raw_ == nullptr) return {};
    return Status::of(tr_comm_deregister(comm_, std::exchange(raw_, nullptr)));
  }

 private:
  friend class Communicator;
  Window(tr_comm_t comm, tr_window_t raw) : comm_(comm), raw_(raw) {}

  tr_comm_t comm_ = nullptr;
  tr_window_t raw_ = nullptr;
};

// Other deadlines for the calls that this thread makes in a scope, in milliseconds; 0: never, -1:
// the communicators'. See tr_set_call_deadline.
class CallDeadline {
 public:
  explicit CallDeadline(std::int64_t timeout_ms, std::int64_t warn_ms = -1)
      : result_(tr_set_call_deadline(timeout_ms, warn_ms)) {}
  ~CallDeadline() { tr_set_call_deadline(-1, -1); }
  CallDeadline(const CallDeadline&) = delete;
  CallDeadline& operator=(const CallDeadline&) = delete;
  tr_result_t result() const { return result_; }  // TR_INVALID_ARGUMENT: values below -1

 private:
  tr_result_t result_;
};

class Communicator {
 public:
  // ---- Birth and end
  // ------------------------------------------------------------------------------
  static Result<tr_unique_id_t> unique_id() {
    tr_unique_id_t id;
    if (const auto code = tr_get_unique_id(&id)) return Error::last(code);
    return id;
  }
  // Collective over `size` callers with the same id.
  static Result<Communicator> create(int size, const tr_unique_id_t& id, int rank) {
    tr_comm_t raw = nullptr;
    if (const auto code = tr_comm_init_rank(&raw, size, id, rank)) return Error::last(code);
    return adopt(raw);
  }
  // Rank and size as the launcher says (`treering run`, torchrun, mpirun, srun); alone: one rank.
  static Result<Communicator> from_env() {
    tr_comm_t raw = nullptr;
    if (const auto code = tr_comm_init_env(&raw)) return Error::last(code);
    return adopt(raw);
  }
  // `size` ranks in this process, for one thread each.
  static Result<std::vector<Communicator>> in_process(int size) {
    std::vector<tr_comm_t> raw(size > 0 ? static_cast<std::size_t>(size) : 0);
    if (const auto code = tr_comm_init_all(raw.data(), size)) return Error::last(code);
    std::vector<Communicator> comms;
    for (tr_comm_t one : raw) {
      Result<Communicator> adopted = adopt(one);
      if (!adopted) return adopted.error();
      comms.push_back(std::move(adopted).value());
    }
    return comms;
  }
  // Takes over a handle of the C API.
  static Result<Communicator> adopt(tr_comm_t raw) {
    Communicator comm(raw);
    if (raw == nullptr) return comm;
    if (const auto code = tr_comm_rank(raw, &comm.rank_)) return Error::last(code);
    if (const auto code = tr_comm_size(raw, &comm.size_)) return Error::last(code);
    return comm;
  }
  // Collective. Ranks with the same colour become a communicator, ordered by (key, rank). With
  // colour TR_SPLIT_NONE the answer is an empty Communicator.
  Result<Communicator> split(int color, int key) {
    tr_comm_t raw = nullptr;
    if (const auto code = tr_comm_split(get(), color, key, &raw)) return Error::last(code);
    return adopt(raw);
  }
  // Collective over the ranks that are left, also when this communicator has failed; see
  // tr_comm_shrink. `without`: ranks that are out though they may live. Destroy this one
  // afterwards.
  Result<Communicator> shrink(std::span<const int> without = {},
                              std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) {
    tr_comm_t raw = nullptr;
    if (const auto code = tr_comm_shrink_without(
            get(), without.data(), static_cast<int>(without.size()), timeout.count(), &raw)) {
      return Error::last(code);
    }
    return adopt(raw);
  }
  // Collective over this communicator and the new ranks, which call create(newsize, id, rank).
  Result<Communicator> grow(int newsize, const tr_unique_id_t& id) {
    tr_comm_t raw = nullptr;
    if (const auto code = tr_comm_grow(get(), newsize, id, &raw)) return Error::last(code);
    return adopt(raw);
  }
  // Empty, as one that was moved from: rank 0 of 1, and every call answers TR_INVALID_ARGUMENT.
  Communicator() = default;
  explicit operator bool() const noexcept { return get() != nullptr; }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  tr_comm_t get() const noexcept { return handle_.get(); }

  Status finalize() { return Status::of(tr_comm_finalize(get())); }
  Status destroy() { return handle_.destroy(); }
  Status abort() { return Status::of(tr_comm_abort(get())); }  // from any thread
  // Success, or why the communicator has failed. From any thread.
  Status async_error() const {
    tr_result_t error = TR_SUCCESS;
    if (const auto code = tr_comm_get_async_error(get(), &error)) return Error::last(code);
    return Status::of(error);
  }
  Result<std::string> explain() const {
    const char* text = nullptr;
    if (const auto code = tr_comm_explain(get(), &text)) return Error::last(code);
    return std::string(text);
  }
  Status set_option(tr_option_t option, std::int64_t value) {
    return Status::of(tr_comm_set_option(get(), option, value));
  }
  // The last calls of this rank, and what all ranks are doing, for `treering status PATH`.
  Status save_flight(const std::string& path) const {
    return Status::of(tr_comm_save_flight(get(), path.c_str()));
  }
  Status set_algorithm(std::string_view collective, std::string_view algorithm) {
    return Status::of(tr_comm_set_algorithm(get(), std::string(collective).c_str(),
                                            std::string(algorithm).c_str()));
  }
  // Collective: every rank registers a HostBuffer or other memory of tr_mem_alloc, or every rank
  // memory of cudaMalloc (sizes may differ).
  template <MutableBuffer B>
  Result<Window> register_buffer(B&& buffer) {
    tr_window_t raw = nullptr;
    const std::size_t bytes = len(buffer) * sizeof(std::ranges::range_value_t<B>);
    if (const auto code = tr_comm_register(get(), out(buffer), bytes, &raw)) {
      return Error::last(code);
    }
    return Window(get(), raw);
  }

  // ---- Collectives. n = size(); |x| is the number of elements of x
  // ----------------------------------- recv[i] = op over ranks of send[i]. |recv| = |send|.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status all_reduce(S&& send, R&& recv, Op op, StreamRef stream = {}) {
    if (auto bad = expect("all_reduce", "recv", len(recv), len(send))) return *bad;
    return Status::of(
        tr_all_reduce(in(send), out(recv), len(send), kTypeIn<S>, op.get(), get(), stream.get()));
  }
  template <MutableBuffer B>
  Status all_reduce(B&& in_place, Op op, StreamRef stream = {}) {
    return all_reduce(in_place, in_place, op, stream);
  }
  // all_reduce for root alone: |recv| = |send| there; elsewhere recv may be empty.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status reduce(S&& send, R&& recv, Op op, int root,
                                           StreamRef stream = {}) {
    if (rank_ == root) {
      if (auto bad = expect("reduce", "recv", len(recv), len(send))) return *bad;
    }
    return Status::of(
        tr_reduce(in(send), out(recv), len(send), kTypeIn<S>, op.get(), root, get(), stream.get()));
  }
  // root's buffer to everyone's.
  template <MutableBuffer B>
  Status broadcast(B&& in_place, int root, StreamRef stream = {}) {
    return Status::of(tr_broadcast(in(in_place), out(in_place), len(in_place), kTypeIn<B>, root,
                                   get(), stream.get()));
  }
  // recv = send of rank 0, send of rank 1, ... |recv| = n |send|.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status all_gather(S&& send, R&& recv, StreamRef stream = {}) {
    if (auto bad = expect("all_gather", "recv", len(recv), n() * len(send))) return *bad;
    return Status::of(
        tr_all_gather(in(send), out(recv), len(send), kTypeIn<S>, get(), stream.get()));
  }
  // recv = part `rank` of the reduction. |send| = n |recv|.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status reduce_scatter(S&& send, R&& recv, Op op,
                                                   StreamRef stream = {}) {
    if (auto bad = expect("reduce_scatter", "send", len(send), n() * len(recv))) return *bad;
    return Status::of(tr_reduce_scatter(in(send), out(recv), len(recv), kTypeIn<S>, op.get(), get(),
                                        stream.get()));
  }
  // all_gather for root alone: |recv| = n |send| there; elsewhere recv may be empty.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status gather(S&& send, R&& recv, int root, StreamRef stream = {}) {
    if (rank_ == root) {
      if (auto bad = expect("gather", "recv", len(recv), n() * len(send))) return *bad;
    }
    return Status::of(
        tr_gather(in(send), out(recv), len(send), kTypeIn<S>, root, get(), stream.get()));
  }
  // Part q of root's send to rank q. |send| = n |recv| at root; elsewhere send may be empty.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status scatter(S&& send, R&& recv, int root, StreamRef stream = {}) {
    if (rank_ == root) {
      if (auto bad = expect("scatter", "send", len(send), n() * len(recv))) return *bad;
    }
    return Status::of(
        tr_scatter(in(send), out(recv), len(recv), kTypeIn<S>, root, get(), stream.get()));
  }
  // Part q of send becomes part `rank` of rank q's recv. |send| = |recv|, a multiple of n.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status all_to_all(S&& send, R&& recv, StreamRef stream = {}) {
    const std::uint64_t part = len(send) / n();
    if (auto bad = expect("all_to_all", "send", len(send), part * n())) return *bad;
    if (auto bad = expect("all_to_all", "recv", len(recv), len(send))) return *bad;
    return Status::of(tr_all_to_all(in(send), out(recv), part, kTypeIn<S>, get(), stream.get()));
  }
  // Fold of ranks 0..rank; exscan: of ranks 0..rank-1, recv of rank 0 untouched. |recv| = |send|.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status scan(S&& send, R&& recv, Op op, StreamRef stream = {}) {
    if (auto bad = expect("scan", "recv", len(recv), len(send))) return *bad;
    return Status::of(
        tr_scan(in(send), out(recv), len(send), kTypeIn<S>, op.get(), get(), stream.get()));
  }
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status exscan(S&& send, R&& recv, Op op, StreamRef stream = {}) {
    if (auto bad = expect("exscan", "recv", len(recv), len(send))) return *bad;
    return Status::of(
        tr_exscan(in(send), out(recv), len(send), kTypeIn<S>, op.get(), get(), stream.get()));
  }
  Status barrier(StreamRef stream = {}) { return Status::of(tr_barrier(get(), stream.get())); }

  // ---- Parts of different sizes
  // -------------------------------------------------------------------- |send| =
  // parts.counts[rank]; the same parts on every rank.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status all_gather_v(S&& send, R&& recv, Parts parts,
                                                 StreamRef stream = {}) {
    if (auto bad = expect("all_gather_v", "recv", len(recv), parts)) return *bad;
    if (auto bad = expect("all_gather_v", "send", len(send), own(parts))) return *bad;
    return Status::of(tr_all_gather_v(in(send), out(recv), parts.counts.data(), displs(parts),
                                      kTypeIn<S>, get(), stream.get()));
  }
  // counts[q] elements to rank q, one part after another in send. |recv| = counts[rank].
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status reduce_scatter_v(S&& send, R&& recv,
                                                     std::span<const std::uint64_t> counts, Op op,
                                                     StreamRef stream = {}) {
    if (auto bad = expect("reduce_scatter_v", "send", len(send), Parts{counts})) return *bad;
    if (auto bad = expect("reduce_scatter_v", "recv", len(recv), own(Parts{counts}))) return *bad;
    return Status::of(tr_reduce_scatter_v(in(send), out(recv), counts.data(), kTypeIn<S>, op.get(),
                                          get(), stream.get()));
  }
  // parts are read at root; each rank's |send| is its part's count.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status gather_v(S&& send, R&& recv, Parts parts, int root,
                                             StreamRef stream = {}) {
    if (rank_ == root) {
      if (auto bad = expect("gather_v", "recv", len(recv), parts)) return *bad;
      if (auto bad = expect("gather_v", "send", len(send), own(parts))) return *bad;
    }
    return Status::of(tr_gather_v(in(send), len(send), out(recv), parts.counts.data(),
                                  displs(parts), kTypeIn<S>, root, get(), stream.get()));
  }
  // parts are read at root; each rank's |recv| is its part's count.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status scatter_v(S&& send, Parts parts, R&& recv, int root,
                                              StreamRef stream = {}) {
    if (rank_ == root) {
      if (auto bad = expect("scatter_v", "send", len(send), parts)) return *bad;
      if (auto bad = expect("scatter_v", "recv", len(recv), own(parts))) return *bad;
    }
    return Status::of(tr_scatter_v(in(send), parts.counts.data(), displs(parts), out(recv),
                                   len(recv), kTypeIn<S>, root, get(), stream.get()));
  }
  // to.counts[q] here equals from.counts[this rank] on rank q.
  template <Buffer S, MutableBuffer R>
  requires SameElement<S, R> Status all_to_all_v(S&& send, Parts to, R&& recv, Parts from,
                                                 StreamRef stream = {}) {
    if (auto bad = expect("all_to_all_v", "send", len(send), to)) return *bad;
    if (auto bad = expect("all_to_all_v", "recv", len(recv), from)) return *bad;
    return Status::of(tr_all_to_all_v(in(send), to.counts.data(), displs(to), out(recv),
                                      from.counts.data(), displs(from), kTypeIn<S>, get(),
                                      stream.get()));
  }

  // ---- Point to point: matched in issue order; send and receive at once inside a GroupGuard
  // ------------
  template <Buffer S>
  Status send(S&& data, int peer, StreamRef stream = {}) {
    return Status::of(tr_send(in(data), len(data), kTypeIn<S>, peer, get(), stream.get()));
  }
  template <MutableBuffer R>
  Status recv(R&& data, int peer, StreamRef stream = {}) {
    return Status::of(tr_recv(out(data), len(data), kTypeIn<R>, peer, get(), stream.get()));
  }

 private:
  explicit Communicator(tr_comm_t raw) : handle_(raw) {}

  template <class B>
  static const void* in(const B& buffer) {
    return std::ranges::data(buffer);
  }
  template <class B>
  static void* out(B& buffer) {
    return std::ranges::data(buffer);
  }
  template <class B>
  static std::uint64_t len(const B& buffer) {
    return std::ranges::size(buffer);
  }
  std::uint64_t n() const { return static_cast<std::uint64_t>(size_); }
  // A wrong counts.size() has been refused before.
  std::uint64_t own(const Parts& parts) const {
    return parts.counts[static_cast<std::size_t>(rank_)];
  }
  static const std::uint64_t* displs(const Parts& parts) {
    return parts.displs.empty() ? nullptr : parts.displs.data();
  }

  static Error refuse(const char* call, const std::string& what) {
    return {TR_INVALID_ARGUMENT,
            std::string(tr_result_string(TR_INVALID_ARGUMENT)) + ": " + call + ": " + what};
  }
  static std::optional<Error> expect(const char* call, const char* buffer, std::uint64_t has,
                                     std::uint64_t needs) {
    if (has == needs) return {};
    return refuse(call, std::string(buffer) + " has " + std::to_string(has) + " elements, but " +
                            std::to_string(needs) + " are needed");
  }
  std::optional<Error> expect(const char* call, const char* buffer, std::uint64_t has,
                              const Parts& parts) const {
    if (parts.counts.size() != n())
      return refuse(call, std::to_string(parts.counts.size()) + " counts for " +
                              std::to_string(size_) + " ranks");
    if (!parts.displs.empty() && parts.displs.size() != n())
      return refuse(call, std::to_string(parts.displs.size()) + " displs for " +
                              std::to_string(size_) + " ranks");
    std::uint64_t next = 0;
    for (std::size_t q = 0; q < parts.counts.size(); ++q) {
      const std::uint64_t at = parts.displs.empty() ? next : parts.displs[q];
      if (at > has || parts.counts[q] > has - at) {
        return refuse(call, "part " + std::to_string(q) + " does not lie inside " + buffer +
                                ", which has " + std::to_string(has) + " elements");
      }
      next = at + parts.counts[q];
    }
    return {};
  }

  detail::Handle<tr_comm_t, tr_comm_destroy> handle_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace tr
