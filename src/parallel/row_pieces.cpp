#include "parallel/row_pieces.hpp"

#include <algorithm>

#include "treering/parallel/layout.hpp"

#include "parallel/try.hpp"

namespace tr::par {
namespace {

// No piece is empty, but for the only one of no rows.
int pieces_of(std::int64_t rows, int wanted) {
  return static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(wanted, rows)));
}

// Piece `number` of `pieces` of a rank's rows; sizes differ by at most one.
RowRange piece_of(std::int64_t rows, int number, int pieces) {
  const std::int64_t first = rows * number / pieces;
  return {first, rows * (number + 1) / pieces - first};
}

// One piece of every rank's rows, block after block, and the operation that it is part of.
struct Piece {
  RowRange mine;
  Tensor blocks;
  InFlight in_flight;

  View block(int rank) const { return blocks.view().row_range(rank * mine.count, mine.count); }
};

Result<Piece> make_piece(Comm& tp, Compute& compute, RowRange mine, std::int64_t cols, DType type) {
  TRY_ASSIGN(Tensor blocks,
             Tensor::make(compute.memory(), Use::kBuffers, tp.size() * mine.count, cols, type));
  return Piece{mine, std::move(blocks), {}};
}

Status keep(Comm& tp, Piece& piece, Result<Comm::Mark> issued) {
  if (!issued) return issued.error();
  piece.in_flight = InFlight(tp, issued.value());
  return {};
}

Result<Piece> start_gather(Comm& tp, Compute& compute, const View& mine, RowRange rows) {
  TRY_ASSIGN(Piece made, make_piece(tp, compute, rows, mine.cols, mine.type));
  TRY(keep(tp, made, tp.all_gather(mine.row_range(rows.first, rows.count), made.blocks.view())));
  return made;
}

}  // namespace

Result<Tensor> gather_rows(Comm& tp, Compute& compute, const View& mine, int pieces,
                           const std::function<Status(const View& whole, RowRange rows)>& use) {
  TRY_ASSIGN(Tensor whole, Tensor::make(compute.memory(), Use::kActivations, tp.size() * mine.rows,
                                        mine.cols, mine.type));
  const View to = whole.view();
  pieces = pieces_of(mine.rows, pieces);
  Result<Piece> next = start_gather(tp, compute, mine, piece_of(mine.rows, 0, pieces));
  for (int number = 0; number < pieces; ++number) {
    if (!next) return next.error();
    Piece now = std::move(next).value();
    if (number + 1 < pieces) {
      next = start_gather(tp, compute, mine, piece_of(mine.rows, number + 1, pieces));
    }
    TRY(now.in_flight.wait());
    for (int q = 0; q < tp.size(); ++q) {
      const RowRange rows{q * mine.rows + now.mine.first, now.mine.count};
      TRY(compute.copy(now.block(q), to.row_range(rows.first, rows.count)));
      TRY(use(to, rows));
    }
  }
  return whole;
}

Result<Tensor> scatter_rows(Comm& tp, Compute& compute, std::int64_t rows, std::int64_t cols,
                            DType type, int pieces,
                            const std::function<Status(RowRange rows, const View& to)>& make) {
  TRY_ASSIGN(Tensor mine, Tensor::make(compute.memory(), Use::kActivations, rows, cols, type));
  const View to = mine.view();
  pieces = pieces_of(rows, pieces);
  Piece last;
  for (int number = 0; number < pieces; ++number) {
    TRY_ASSIGN(Piece now, make_piece(tp, compute, piece_of(rows, number, pieces), cols, type));
    for (int q = 0; q < tp.size(); ++q) {
      TRY(make({q * rows + now.mine.first, now.mine.count}, now.block(q)));
    }
    TRY(keep(tp, now,
             tp.reduce_scatter(now.blocks.view(), to.row_range(now.mine.first, now.mine.count))));
    TRY(last.in_flight.wait());  // its blocks go
    last = std::move(now);
  }
  TRY(last.in_flight.wait());
  return mine;
}

}  // namespace tr::par
