// Lesson 4: tensor parallelism. Every rank has all rows and a part of each matrix. Two ways to cut
// two layers y = relu(x A) B, forward and backward:
//
//   gather     A and B by columns. Rank r computes columns of the result; an all-gather puts them
//              together for the next layer. Backward, each rank has a partial sum of dx, and a
//              *reduce-scatter* over columns hands each rank exactly the columns it needs.
//   Megatron   A by columns, B by rows. Between them nothing is sent: rank r's columns of x A are
//              what its rows of B need. One all-reduce forward, one backward (Shoeybi et al. 2019).
//
// A mistake to see: dy is the same on all ranks. Summing a column-parallel layer's dy over the
// ranks "because gradients are summed" gives n times the gradient; the right thing is to send
// nothing.
//
//   treering run -n 4 -- 04_tensor_parallel
#include <cstdio>

#include "treering/treering.hpp"

#include "lesson.hpp"
#include "must.hpp"

using example::check;
using example::must;
using lesson::column_range;
using lesson::Matrix;
using lesson::product;
using lesson::relative_error;
using lesson::row_range;
using lesson::transposed;

constexpr int kRows = 16, kWidth = 64;

// Columns of the ranks, side by side. An all-gather leaves one rank's block after the other; a row
// of the whole lies across all blocks. Who forgets to re-lay them has a matrix of the right shape
// and wrong numbers.
Matrix gather_columns(tr::Communicator& comm, const Matrix& mine) {
  std::vector<float> blocks(mine.x.size() * static_cast<std::size_t>(comm.size()));
  must(comm.all_gather(mine.x, blocks));
  Matrix all(mine.rows, mine.cols * comm.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const int in_block = static_cast<int>(i % mine.x.size()),
              r = static_cast<int>(i / mine.x.size());
    all.at(in_block / mine.cols, r * mine.cols + in_block % mine.cols) = blocks[i];
  }
  return all;
}

// The opposite: partial sums of the whole on each rank; rank r gets its columns of the sum.
Matrix reduce_scatter_columns(tr::Communicator& comm, const Matrix& partial) {
  const int n = comm.size(), cols = partial.cols / n;
  std::vector<float> blocks;
  for (int r = 0; r < n; ++r) {
    const Matrix block = column_range(partial, r * cols, cols);
    blocks.insert(blocks.end(), block.x.begin(), block.x.end());
  }
  Matrix mine(partial.rows, cols);
  must(comm.reduce_scatter(blocks, mine.x, tr::kSum));
  return mine;
}

int main() {
  tr::Communicator comm = must(tr::Communicator::from_env());
  const int rank = comm.rank(), n = comm.size(), cols = kWidth / n;
  if (kWidth % n != 0) {
    std::fprintf(stderr, "%d columns cannot be shared by %d ranks\n", kWidth, n);
    return 1;
  }
  // Serial: what both ways must arrive at.
  const Matrix x = lesson::random(kRows, kWidth, 100);
  const Matrix A = lesson::random(kWidth, kWidth, 0, 0.3),
               B = lesson::random(kWidth, kWidth, 1, 0.3);
  const Matrix a = lesson::relu(product(x, A)), y = product(a, B);
  const Matrix dy = lesson::loss_gradient(y, kRows);
  const Matrix dB = product(transposed(a), dy);
  const Matrix dz = lesson::relu_backward(product(dy, transposed(B)), a);
  const Matrix dA = product(transposed(x), dz), dx = product(dz, transposed(A));

  {  // ---- gather
    const Matrix A_r = column_range(A, rank * cols, cols), B_r = column_range(B, rank * cols, cols);
    const Matrix a_r = lesson::relu(product(x, A_r));
    const Matrix a_all = gather_columns(comm, a_r);
    const Matrix y_all = gather_columns(comm, product(a_all, B_r));
    check(relative_error(y_all.x, y.x) < 1e-6, "gather: the outputs");

    const Matrix dy_r = column_range(lesson::loss_gradient(y_all, kRows), rank * cols, cols);
    const Matrix dB_r = product(transposed(a_all), dy_r);
    check(relative_error(dB_r.x, column_range(dB, rank * cols, cols).x) < 2e-6, "gather: dB");
    const Matrix da_r = reduce_scatter_columns(comm, product(dy_r, transposed(B_r)));
    const Matrix dz_r = lesson::relu_backward(da_r, a_r);
    const Matrix dA_r = product(transposed(x), dz_r);
    check(relative_error(dA_r.x, column_range(dA, rank * cols, cols).x) < 2e-6, "gather: dA");
    Matrix dx_sum = product(dz_r, transposed(A_r));  // the first layer of a network leaves it out
    must(comm.all_reduce(dx_sum.x, tr::kSum));
    check(relative_error(dx_sum.x, dx.x) < 2e-6, "gather: dx");

    // The mistake: dy was the same everywhere, so this is n times the gradient.
    Matrix dy_sum = dy_r;
    std::vector<float> whole = lesson::loss_gradient(y_all, kRows).x;
    must(comm.all_reduce(whole, tr::kSum));
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < cols; ++j) {
        dy_sum.at(i, j) = whole[static_cast<std::size_t>(i) * kWidth + rank * cols + j];
      }
    }
    const Matrix wrong = product(transposed(a_all), dy_sum);
    const double times = wrong.at(1, 1) / dB_r.at(1, 1);
    check(std::abs(times - n) < 1e-3, "summing a replicated dy gives n times the gradient");
    if (rank == 0) {
      std::printf(
          "gather:   y, dA, dB, dx are the serial ones; dy summed over ranks would be "
          "%.3g times the gradient\n",
          times);
    }
  }
  {  // ---- Megatron
    const Matrix A_r = column_range(A, rank * cols, cols), B_r = row_range(B, rank * cols, cols);
    const Matrix a_r = lesson::relu(product(x, A_r));  // columns here are rows there
    Matrix y_sum = product(a_r, B_r);
    must(comm.all_reduce(y_sum.x, tr::kSum));  // a bias would be added now, not before
    check(relative_error(y_sum.x, y.x) < 1e-6, "Megatron: the outputs");

    const Matrix d = lesson::loss_gradient(y_sum, kRows);  // the same everywhere
    const Matrix dB_r = product(transposed(a_r), d);
    check(relative_error(dB_r.x, row_range(dB, rank * cols, cols).x) < 2e-6, "Megatron: dB");
    const Matrix dz_r = lesson::relu_backward(product(d, transposed(B_r)), a_r);
    Matrix dx_sum = product(dz_r, transposed(A_r));
    tr::Stream stream = must(tr::Stream::create());
    must(comm.all_reduce(dx_sum.x, tr::kSum, stream));  // the sum of dx travels ...
    const Matrix dA_r = product(transposed(x), dz_r);   // ... while dA is computed
    must(stream.synchronize());
    check(relative_error(dA_r.x, column_range(dA, rank * cols, cols).x) < 2e-6, "Megatron: dA");
    check(relative_error(dx_sum.x, dx.x) < 2e-6, "Megatron: dx");
    if (rank == 0) {
      std::printf(
          "Megatron: the same, with 2 all-reduces where gather needs 2 all-gathers, a "
          "reduce-scatter and dx's all-reduce\n");
    }
  }
  must(comm.destroy());
}
