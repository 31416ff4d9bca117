// Lesson 3: data parallelism. Every rank has the whole network and a share of the rows; gradients
// are summed over the ranks, and so every rank takes the same step.
//
// Three things to see:
// - The loss is divided by the *global* number of rows, and gradients are summed. The mean of the
//   ranks' means is another gradient as soon as shares are uneven (130 rows over 4 ranks).
// - A layer's sum may start as soon as its gradient is there, and run beside the rest of the
//   backward pass: on a stream, always in the same order on all ranks.
// - A rank that leaves a call out does not make the others wait for ever: they are told who called
//   what. (Not shown here: break_it does it.)
//
//   treering run -n 4 -- 03_data_parallel
#include <cstdio>
#include <vector>

#include "treering/treering.hpp"

#include "lesson.hpp"
#include "must.hpp"

using example::check;
using example::must;
using lesson::Matrix;
using lesson::Net;

constexpr int kLayers = 4, kWidth = 64, kRows = 130;

// One rank, all rows: what the ranks must arrive at together.
Net serial_gradient(const Net& net, const Matrix& x) {
  Net gradient(net.size());
  lesson::backward(net, lesson::forward(net, x), x.rows, gradient, [](int) {});
  return gradient;
}

double worst_error(const Net& gradient, const Net& expected) {
  double worst = 0;
  for (std::size_t l = 0; l < gradient.size(); ++l) {
    worst = std::max(worst, lesson::relative_error(gradient[l].x, expected[l].x));
  }
  return worst;
}

int main() {
  tr::Communicator comm = must(tr::Communicator::from_env());
  const int rank = comm.rank(), n = comm.size();
  tr::Stream stream = must(tr::Stream::create());

  // The same on every rank, because numbers are functions of their place: no broadcast is needed.
  Net net = lesson::make_net(kLayers, kWidth);
  const Matrix all = lesson::random(kRows, kWidth, 100);
  const lesson::Share mine = lesson::share(kRows, rank, n);
  const Matrix x = lesson::row_range(all, mine.first, mine.count);

  // One step's gradient, summed while the backward pass goes on.
  Net gradient(net.size());
  const std::vector<Matrix> a = lesson::forward(net, x);
  lesson::backward(net, a, kRows, gradient, [&](int l) {
    must(comm.all_reduce(gradient[l].x, tr::kSum, stream));  // returns at once
  });
  must(stream.synchronize());

  const Net expected = serial_gradient(net, all);
  const double error = worst_error(gradient, expected);
  check(error < 2e-6, "the summed gradient is that of all rows");

  // The mistake: each rank divides by its own rows, and the gradients are averaged.
  Net means(net.size());
  lesson::backward(net, a, mine.count, means, [](int) {});
  for (Matrix& g : means) must(comm.all_reduce(g.x, tr::kAvg));
  const double wrong = worst_error(means, expected);
  check(kRows % n == 0 || wrong > 1e-3, "a mean of means is another gradient");

  // Equal gradients, equal steps: parameters never have to be sent.
  for (int l = 0; l < kLayers; ++l) {
    for (std::size_t i = 0; i < net[l].x.size(); ++i) net[l].x[i] -= 0.01f * gradient[l].x[i];
  }
  std::vector<float> low = net[0].x, high = net[0].x;
  must(comm.all_reduce(low, tr::kMin));
  must(comm.all_reduce(high, tr::kMax));
  check(low == high, "all ranks have the same parameters");

  // The mean loss of all rows: also a sum over ranks, divided once.
  std::vector<double> loss = {lesson::loss_sum(a.back())};
  must(comm.all_reduce(loss, tr::kSum));
  if (rank == 0) {
    const double bytes = static_cast<double>(kLayers) * kWidth * kWidth * sizeof(float);
    std::printf("%d ranks, %d rows: loss %.6f\n", n, kRows, loss[0] / kRows);
    std::printf("gradient against all rows on one rank: relative error %.1e\n", error);
    std::printf("mean of the ranks' means instead:      relative error %.1e%s\n", wrong,
                kRows % n == 0 ? " (equal shares: no difference)" : ", a wrong gradient");
    std::printf("each rank sent 2 (n-1)/n x %.0f = %.0f bytes; more ranks, no more bytes a rank\n",
                bytes, 2.0 * (n - 1) / n * bytes);
  }
  must(comm.destroy());
}
