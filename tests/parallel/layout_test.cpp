// Changes of layout: exact integers against parts of the whole matrix, and the bytes that they
// send.
#include "treering/parallel/layout.hpp"

#include <gtest/gtest.h>

#include "team.hpp"

namespace {

using namespace partest;
using tr::par::Relayout;

constexpr Layout kLayouts[] = {Layout::kReplicated, Layout::kColumns, Layout::kRows,
                               Layout::kPartial};

// What rank `rank` begins with. Summands differ, and their sum is the matrix.
Matrix start_of(const Matrix& whole, Layout layout, int rank, int size) {
  if (layout != Layout::kPartial) return part_of(whole, layout, rank, size);
  Matrix summand = whole;
  for (std::size_t i = 0; i < summand.x.size(); ++i) {
    const double noise = static_cast<double>((i * 7 + rank) % 100);
    const double all_noise = [&] {
      double sum = 0;
      for (int q = 1; q < size; ++q) sum += static_cast<double>((i * 7 + q) % 100);
      return sum;
    }();
    summand.x[i] = rank == 0 ? whole.x[i] - all_noise : noise;
  }
  return summand;
}

Matrix numbered(std::int64_t rows, std::int64_t cols) {
  Matrix whole(rows, cols);
  for (std::size_t i = 0; i < whole.x.size(); ++i) whole.x[i] = static_cast<double>(i + 1);
  return whole;
}

// Of one rank, by the table on top of layout.hpp.
std::int64_t bytes_by_hand(Layout from, Layout to, std::int64_t bytes, int size) {
  if (from == to || from == Layout::kReplicated) return 0;
  if (from == Layout::kPartial && to == Layout::kReplicated) return bytes * 2 * (size - 1) / size;
  if (to != Layout::kReplicated && from != Layout::kPartial) {
    return bytes / size * (size - 1) / size;
  }
  return bytes * (size - 1) / size;
}

template <class Body>
void for_all_pairs(const Body& body) {
  for (const int size : {1, 2, 3, 4}) {
    for (const Layout from : kLayouts) {
      for (const Layout to : kLayouts) {
        if (to == Layout::kPartial) continue;
        SCOPED_TRACE(std::to_string(size) + " ranks, " + name_of(from) + " to " + name_of(to));
        body(size, from, to);
      }
    }
  }
}

TEST(Layout, EveryChangeMovesTheRightElementsAndBytes) {
  for (const DType type : {DType::kFloat64, DType::kFloat32}) {
    for_all_pairs([&](int size, Layout from, Layout to) {
      const Matrix whole = numbered(24, 48);
      const auto bytes = static_cast<std::int64_t>(24 * 48 * size_of(type));
      EXPECT_EQ(relayout_bytes(from, to, 24, 48, type, size), bytes_by_hand(from, to, bytes, size));
      on_ranks(size, [&](Comm& tp) {
        const auto compute = must(tr::par::make_host_compute("ref"));
        const Matrix mine = start_of(whole, from, tp.rank(), size);
        const Spread moved =
            must(relayout(tp, *compute, {tensor_of(*compute, mine, type), from}, to));
        EXPECT_EQ(moved.layout, to);
        expect_equal(read(*compute, moved.tensor.view()), part_of(whole, to, tp.rank(), size));
        EXPECT_EQ(tp.traffic().bytes(), bytes_by_hand(from, to, bytes, size));
      });
    });
  }
}

TEST(Layout, WhatIsBorrowedStaysAsItWas) {
  for_all_pairs([&](int size, Layout from, Layout to) {
    const Matrix whole = numbered(12, 24);
    on_ranks(size, [&](Comm& tp) {
      const auto compute = must(tr::par::make_host_compute("ref"));
      const Matrix mine = start_of(whole, from, tp.rank(), size);
      const Tensor kept = tensor_of(*compute, mine, DType::kFloat32);
      const Spread moved = must(
          must(Relayout::start(tp, *compute, kept.view(), from, to, Use::kActivations)).finish());
      EXPECT_NE(moved.tensor.view().data, kept.view().data);
      expect_equal(read(*compute, moved.tensor.view()), part_of(whole, to, tp.rank(), size));
      expect_equal(read(*compute, kept.view()), mine);
    });
  });
}

// Two changes at once, finished in the other order; and one that nobody finishes.
TEST(Layout, ChangesMayBeUnderWayTogether) {
  on_ranks(4, [&](Comm& tp) {
    const auto compute = must(tr::par::make_host_compute("ref"));
    const Matrix a = numbered(8, 4), b = numbered(4, 12);
    const auto start = [&](const Matrix& whole, Layout from, Layout to) {
      const Matrix mine = start_of(whole, from, tp.rank(), 4);
      return must(Relayout::start(tp, *compute, {tensor_of(*compute, mine, DType::kFloat64), from},
                                  to, Use::kBuffers));
    };
    Relayout first = start(a, Layout::kColumns, Layout::kReplicated);
    Relayout second = start(b, Layout::kPartial, Layout::kColumns);
    start(a, Layout::kRows, Layout::kColumns);
    const Spread moved = must(std::move(second).finish());
    expect_equal(read(*compute, moved.tensor.view()), part_of(b, Layout::kColumns, tp.rank(), 4));
    expect_equal(read(*compute, must(std::move(first).finish()).tensor.view()), a);
  });
}

TEST(Layout, MatricesMayBeEmpty) {
  for_all_pairs([&](int size, Layout from, Layout to) {
    on_ranks(size, [&](Comm& tp) {
      const auto compute = must(tr::par::make_host_compute("ref"));
      const Matrix mine = start_of(Matrix(0, 24), from, tp.rank(), size);
      const Spread moved =
          must(relayout(tp, *compute, {tensor_of(*compute, mine, DType::kFloat32), from}, to));
      expect_equal(read(*compute, moved.tensor.view()),
                   part_of(Matrix(0, 24), to, tp.rank(), size));
    });
  });
}

TEST(Layout, RefusesWhatCannotBe) {
  EXPECT_EQ(message_of(local_shape(Layout::kColumns, 8, 10, 4)),
            "4 tensor-parallel ranks cannot share 10 columns evenly");
  EXPECT_EQ(message_of(local_shape(Layout::kRows, 10, 8, 4)),
            "4 tensor-parallel ranks cannot share 10 rows evenly");
  on_ranks(2, [](Comm& tp) {
    const auto compute = must(tr::par::make_host_compute("ref"));
    const auto change = [&](std::int64_t rows, Layout from, Layout to) {
      return message_of(relayout(
          tp, *compute, {tensor_of(*compute, Matrix(rows, 4), DType::kFloat32), from}, to));
    };
    EXPECT_EQ(change(4, Layout::kColumns, Layout::kPartial),
              "a matrix in layout columns cannot become partial");
    EXPECT_EQ(change(3, Layout::kPartial, Layout::kRows),
              "2 tensor-parallel ranks cannot share 3 rows evenly");
    EXPECT_EQ(tp.traffic().bytes(), 0);
  });
}

}  // namespace
