// Layout: how a matrix that all tensor-parallel ranks share is spread over them. The whole of
// tensor parallelism is in which layout a layer needs and leaves; communication is what it takes to
// get from one layout to another.
//
//   kReplicated  every rank has the whole matrix, the same bits
//   kColumns     rank t has columns [t, t+1) * cols / P
//   kRows        rank t has rows [t, t+1) * rows / P        (sequence parallelism)
//   kPartial     every rank has a summand of the whole matrix
//
//   from \ to     kReplicated          kColumns                kRows
//   kReplicated   -                    slice                   slice
//   kColumns      all-gather           -                       all-to-all
//   kRows         all-gather           all-to-all              -
//   kPartial      all-reduce           reduce-scatter          reduce-scatter
//
// The gradient of what was gathered is sliced or reduce-scattered, and of what was reduced,
// copied: the pairs of conjugate operators of Megatron-LM (Shoeybi et al. 2019: f and g;
// Korthikanti et al. 2022, for sequences) are rows and columns of this table, not code of their
// own.
//
// By columns, a gather or scatter re-lays its blocks: ranks' blocks come one after another, while a
// row's columns lie side by side.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "treering/parallel/comm.hpp"
#include "treering/parallel/compute.hpp"

namespace tr::par {

enum class Layout : std::uint8_t { kReplicated, kColumns, kRows, kPartial };
const char* name_of(Layout layout);  // "replicated"

// The shape of one rank's part. TR_INVALID_ARGUMENT, with the numbers, where P does not divide.
struct LocalShape {
  std::int64_t rows = 0, cols = 0;
};
Result<LocalShape> local_shape(Layout layout, std::int64_t rows, std::int64_t cols, int ranks);

// A matrix and how it is spread.
struct Spread {
  Tensor tensor;
  Layout layout = Layout::kReplicated;
};

// An operation whose buffers must stay until it has ended: it is waited for, on the error path too.
class InFlight {
 public:
  InFlight() = default;
  InFlight(Comm& comm, Comm::Mark mark) : comm_(&comm), mark_(mark) {}
  InFlight(InFlight&& other) noexcept
      : comm_(std::exchange(other.comm_, nullptr)), mark_(other.mark_) {}
  InFlight& operator=(InFlight&& other) noexcept {
    if (this != &other) {
      (void)wait();
      comm_ = std::exchange(other.comm_, nullptr);
      mark_ = other.mark_;
    }
    return *this;
  }
  ~InFlight() { (void)wait(); }
  Status wait() {
    Comm* comm = std::exchange(comm_, nullptr);
    return comm == nullptr ? Status() : comm->wait(mark_);
  }

 private:
  Comm* comm_ = nullptr;
  Comm::Mark mark_ = 0;
};

// A change of layout that is under way: started, so that the caller can compute beside it, then
// finished.
class Relayout {
 public:
  // Takes `from` over and keeps it until the end. Nothing is sent where the table says "-" or
  // "slice", or where the group is one rank.
  static Result<Relayout> start(Comm& tp, Compute& compute, Spread from, Layout to, Use use);
  // The same of what stays the caller's: unchanged, and there until the end. Where nothing moves,
  // it is copied.
  static Result<Relayout> start(Comm& tp, Compute& compute, const View& from, Layout layout,
                                Layout to, Use use);
  Relayout(Relayout&&) noexcept = default;
  // What is under way has ended before its buffers go.
  Relayout& operator=(Relayout&& other) noexcept {
    if (this != &other) {
      std::destroy_at(this);
      std::construct_at(this, std::move(other));
    }
    return *this;
  }
  ~Relayout() = default;
  Result<Spread> finish() &&;

 private:
  Relayout() = default;
  static Result<Relayout> prepare(Comm& tp, Compute& compute, const View& from, Layout layout,
                                  Layout to, Use use);
  Status issue(const View& from, bool is_owned);
  Status reduce(const View& from, bool is_owned);
  Status gather(const View& from);
  Status scatter(const View& from);
  Result<Tensor> make(const LocalShape& shape, Use use) const;
  template <class Body>
  Status make_result(const Body& body);
  Status keep(Result<Comm::Mark> issued);

  Comm* tp_ = nullptr;
  Compute* compute_ = nullptr;
  Layout from_ = Layout::kReplicated, to_ = Layout::kReplicated;
  Use use_ = Use::kActivations;
  DType type_ = DType::kFloat32;
  LocalShape shape_;                           // of this rank's part of the result
  Tensor source_, packed_, arrived_, result_;  // packed and arrived: block after block
  InFlight in_flight_;                         // the last member: gone before the buffers
};
inline Result<Spread> relayout(Comm& tp, Compute& compute, Spread from, Layout to,
                               Use use = Use::kActivations) {
  Result<Relayout> started = Relayout::start(tp, compute, std::move(from), to, use);
  if (!started) return started.error();
  return std::move(started).value().finish();
}

// Bytes that each rank sends to get from one layout to another (table above). Where an all-reduce's
// elements cannot be cut evenly, the average, rounded down.
std::int64_t relayout_bytes(Layout from, Layout to, std::int64_t rows, std::int64_t cols,
                            DType type, int ranks);

}  // namespace tr::par
