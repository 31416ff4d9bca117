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

// A change of layout that is under way: started, so that the caller can compute beside it, then
// finished.
class Relayout {
 public:
  // Takes `from` over and keeps it until the end. Nothing is sent where the table says "-" or
  // "slice", or where the group is one rank.
  static Result<Relayout> start(Comm& tp, Compute& compute, Spread from, Layout to, Use use);
  Result<Spread> finish() &&;

 private:
  Comm* tp_ = nullptr;
  Compute* compute_ = nullptr;
  Comm::Mark mark_ = 0;
  Layout from_ = Layout::kReplicated, to_ = Layout::kReplicated;
  Use use_ = Use::kActivations;
  Spread source_;
  Tensor packed_, arrived_;
};
inline Result<Spread> relayout(Comm& tp, Compute& compute, Spread from, Layout to,
                               Use use = Use::kActivations) {
  Result<Relayout> started = Relayout::start(tp, compute, std::move(from), to, use);
  if (!started) return started.error();
  return std::move(started).value().finish();
}

// Bytes that each rank sends to get from one layout to another (table above).
std::int64_t relayout_bytes(Layout from, Layout to, std::int64_t rows, std::int64_t cols,
                            DType type, int ranks);

}  // namespace tr::par
