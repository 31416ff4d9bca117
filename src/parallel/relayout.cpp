// A change of layout: pack what is sent block by block, one collective, unpack what arrived block
// by block. Blocks of rows lie one after another in a matrix and need neither.
#include <string>

#include "treering/parallel/layout.hpp"

#include "parallel/try.hpp"

namespace tr::par {
namespace {

constexpr bool is_cut(Layout layout) {
  return layout == Layout::kColumns || layout == Layout::kRows;
}

// Part q of `whole`, of the parts that `ranks` ranks have in a layout.
View part_of(const View& whole, Layout layout, int q, int ranks) {
  if (layout == Layout::kColumns) {
    const std::int64_t cols = whole.cols / ranks;
    return whole.columns(q * cols, cols);
  }
  const std::int64_t rows = whole.rows / ranks;
  return whole.row_range(q * rows, rows);
}

// Block q of `ranks` equal blocks that lie one after another in `blocks`, as a matrix of q's own.
View block_of(const View& blocks, int q, int ranks, std::int64_t cols) {
  const std::int64_t elements = blocks.elements() / ranks;
  return view_of(blocks.flat().at(0, q * elements), cols == 0 ? 0 : elements / cols, cols,
                 blocks.type);
}

// Between a matrix's column parts and blocks that lie one after another.
Status pack(Compute& compute, const View& matrix, const View& blocks, int ranks) {
  for (int q = 0; q < ranks; ++q) {
    const View part = part_of(matrix, Layout::kColumns, q, ranks);
    TRY(compute.copy(part, block_of(blocks, q, ranks, part.cols)));
  }
  return {};
}
Status unpack(Compute& compute, const View& blocks, const View& matrix, int ranks) {
  for (int q = 0; q < ranks; ++q) {
    const View part = part_of(matrix, Layout::kColumns, q, ranks);
    TRY(compute.copy(block_of(blocks, q, ranks, part.cols), part));
  }
  return {};
}

// Shape of the whole matrix, of which a rank has `local`.
LocalShape whole_of(const View& local, Layout layout, int ranks) {
  return {local.rows * (layout == Layout::kRows ? ranks : 1),
          local.cols * (layout == Layout::kColumns ? ranks : 1)};
}

}  // namespace

Result<Relayout> Relayout::start(Comm& tp, Compute& compute, Spread from, Layout to, Use use) {
  const View view = from.tensor.view();
  TRY_ASSIGN(Relayout started, prepare(tp, compute, view, from.layout, to, use));
  started.source_ = std::move(from.tensor);
  TRY(started.issue(view, true));
  return started;
}

Result<Relayout> Relayout::start(Comm& tp, Compute& compute, const View& from, Layout layout,
                                 Layout to, Use use) {
  TRY_ASSIGN(Relayout started, prepare(tp, compute, from, layout, to, use));
  TRY(started.issue(from, false));
  return started;
}

Result<Relayout> Relayout::prepare(Comm& tp, Compute& compute, const View& from, Layout layout,
                                   Layout to, Use use) {
  if (to == Layout::kPartial && layout != to) {
    return Error{TR_INVALID_ARGUMENT,
                 std::string("a matrix in layout ") + name_of(layout) + " cannot become partial"};
  }
  if (!from.is_contiguous()) {
    return Error{TR_INVALID_ARGUMENT, "a change of layout needs a contiguous matrix"};
  }
  Relayout change;
  change.tp_ = &tp;
  change.compute_ = &compute;
  change.from_ = layout;
  change.to_ = to;
  change.use_ = use;
  change.type_ = from.type;
  const LocalShape whole = whole_of(from, layout, tp.size());
  TRY_ASSIGN(change.shape_, local_shape(to, whole.rows, whole.cols, tp.size()));
  return change;
}

Result<Tensor> Relayout::make(const LocalShape& shape, Use use) const {
  return Tensor::make(compute_->memory(), use, shape.rows, shape.cols, type_);
}

Status Relayout::issue(const View& from, bool is_owned) {
  if (tp_->size() == 1 || from_ == to_) {
    if (is_owned) {
      result_ = std::move(source_);
      return {};
    }
    return make_result([&](const View& result) { return compute_->copy(from, result); });
  }
  if (from_ == Layout::kReplicated) {
    return make_result([&](const View& result) {
      return compute_->copy(part_of(from, to_, tp_->rank(), tp_->size()), result);
    });
  }
  if (to_ == Layout::kReplicated) return is_cut(from_) ? gather(from) : reduce(from, is_owned);
  return scatter(from);
}

template <class Body>
Status Relayout::make_result(const Body& body) {
  TRY_ASSIGN(result_, make(shape_, use_));
  return body(result_.view());
}

Status Relayout::keep(Result<Comm::Mark> issued) {
  if (!issued) return issued.error();
  in_flight_ = InFlight(*tp_, issued.value());
  return {};
}

Status Relayout::reduce(const View& from, bool is_owned) {
  if (is_owned) {
    result_ = std::move(source_);
    return keep(tp_->all_reduce(from, from));
  }
  return make_result([&](const View& result) { return keep(tp_->all_reduce(from, result)); });
}

// Rows arrive where they belong; columns block by block.
Status Relayout::gather(const View& from) {
  return make_result([&](const View& result) -> Status {
    if (from_ == Layout::kRows) return keep(tp_->all_gather(from, result));
    TRY_ASSIGN(arrived_, make(shape_, Use::kBuffers));
    return keep(tp_->all_gather(from, arrived_.view()));
  });
}

// To columns, blocks are packed, and what comes is in place. To rows, blocks are in place, and of a
// matrix cut by columns they are unpacked.
Status Relayout::scatter(const View& from) {
  View send = from;
  if (to_ == Layout::kColumns) {
    TRY_ASSIGN(packed_, make({from.rows, from.cols}, Use::kBuffers));
    send = packed_.view();
    TRY(pack(*compute_, from, send, tp_->size()));
  }
  return make_result([&](const View& result) -> Status {
    if (from_ == Layout::kPartial) return keep(tp_->reduce_scatter(send, result));
    if (to_ == Layout::kColumns) return keep(tp_->all_to_all(send, result));
    TRY_ASSIGN(arrived_, make(shape_, Use::kBuffers));
    return keep(tp_->all_to_all(send, arrived_.view()));
  });
}

Result<Spread> Relayout::finish() && {
  TRY(in_flight_.wait());
  if (!arrived_.is_empty()) {
    TRY(unpack(*compute_, arrived_.view(), result_.view(), tp_->size()));
  }
  return Spread{std::move(result_), to_};
}

}  // namespace tr::par
