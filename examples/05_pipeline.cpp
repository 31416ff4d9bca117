// Lesson 5: pipeline parallelism. Every rank has some of the layers; activations go to the next
// rank, gradients come back. One batch in one piece leaves all ranks but one idle; cut into
// micro-batches, it fills the pipeline.
//
//   1F1B, 2 ranks, 4 micro-batches:   rank 0: F0 F1 B0 F2 B1 F3 B2 B3
//                                     rank 1: F0 B0 F1 B1 F2 B2 F3 B3
//
// (Narayanan et al., "PipeDream", SOSP 2019.) It is idle as long as "all forward, then all
// backward"
// - the bubble is (n-1)/(m+n-1) of the time - but keeps n - r micro-batches instead of all m.
//
// Sends must not wait for their receives while the other side sends too: here they go on a stream,
// and gradients travel over a communicator of their own, so that the two directions cannot be taken
// for each other. Micro-batches end in order, so the sum of their gradients has the serial bits.
//
//   treering run -n 4 -- 05_pipeline
#include <cstdio>
#include <map>
#include <string>

#include "treering/treering.hpp"

#include "lesson.hpp"
#include "must.hpp"

using example::check;
using example::must;
using lesson::Matrix;
using lesson::Net;

constexpr int kLayers = 8, kWidth = 48, kMicroBatches = 8, kRows = 4;  // rows of a micro-batch

struct Rank {
  tr::Communicator& forward_comm;
  tr::Communicator& backward_comm;
  tr::Stream& stream;
  Net layers;                               // of this rank
  Net gradient;                             // summed over micro-batches
  std::map<int, std::vector<Matrix>> kept;  // inputs of the layers, by micro-batch
  std::string log;
  std::size_t most_kept = 0;

  int rank() const { return forward_comm.rank(); }
  bool is_last() const { return rank() + 1 == forward_comm.size(); }

  void forward(int b) {
    log += " F" + std::to_string(b);
    Matrix x = lesson::random(kRows, kWidth, 100 + b);
    if (rank() > 0) must(forward_comm.recv(x.x, rank() - 1));
    std::vector<Matrix>& a = kept[b];
    a.push_back(std::move(x));
    for (const Matrix& w : layers) a.push_back(lesson::relu(product(a.back(), w)));
    most_kept = std::max(most_kept, kept.size());
    if (!is_last()) must(forward_comm.send(a.back().x, rank() + 1, stream));
  }

  void backward(int b) {
    log += " B" + std::to_string(b);
    const std::vector<Matrix>& a = kept.at(b);
    Matrix d = lesson::loss_gradient(a.back(), kRows * kMicroBatches);
    if (!is_last()) must(backward_comm.recv(d.x, rank() + 1));
    for (int l = static_cast<int>(layers.size()) - 1; l >= 0; --l) {
      d = lesson::relu_backward(std::move(d), a[l + 1]);
      const Matrix dW = product(transposed(a[l]), d);
      for (std::size_t i = 0; i < dW.x.size(); ++i) gradient[l].x[i] += dW.x[i];
      d = product(d, transposed(layers[l]));
    }
    if (rank() > 0) must(backward_comm.send(d.x, rank() - 1, stream));
    must(stream.synchronize());  // what was sent goes out of use
    kept.erase(b);
  }
};

// Warm up with as many forwards as there are ranks behind this one, then one forward, one backward.
void run_1f1b(Rank& r) {
  const int n = r.forward_comm.size(), warm_up = std::min(n - r.rank() - 1, kMicroBatches);
  for (int b = 0; b < warm_up; ++b) r.forward(b);
  for (int b = warm_up; b < kMicroBatches; ++b) {
    r.forward(b);
    r.backward(b - warm_up);
  }
  for (int b = kMicroBatches - warm_up; b < kMicroBatches; ++b) r.backward(b);
}

int main() {
  tr::Communicator comm = must(tr::Communicator::from_env());
  tr::Communicator back = must(comm.split(0, comm.rank()));
  tr::Stream stream = must(tr::Stream::create());
  const int rank = comm.rank(), n = comm.size();
  if (kLayers < n) {
    std::fprintf(stderr, "%d layers cannot be shared by %d ranks\n", kLayers, n);
    return 1;
  }
  const Net net = lesson::make_net(kLayers, kWidth);
  const lesson::Share mine = lesson::share(kLayers, rank, n);  // uneven is fine: 3/3/2
  Rank r{comm, back, stream, {}, {}, {}, {}, 0};
  for (int l = mine.first; l < mine.first + mine.count; ++l) r.layers.push_back(net[l]);
  r.gradient.assign(r.layers.size(), Matrix(kWidth, kWidth));
  run_1f1b(r);
  must(stream.synchronize());

  // One rank with all layers, the same micro-batches: the same bits.
  tr::Communicator alone = must(comm.split(rank, 0));
  Rank serial{alone, alone, stream, net, {}, {}, {}, 0};
  serial.gradient.assign(net.size(), Matrix(kWidth, kWidth));
  run_1f1b(serial);
  for (int l = 0; l < mine.count; ++l) {
    check(r.gradient[l].x == serial.gradient[mine.first + l].x, "gradients have the serial bits");
  }
  for (int q = 0; q < n; ++q) {
    if (q == rank) {
      std::printf("rank %d, layers %d-%d:%s   kept at most %zu of %d micro-batches\n", rank,
                  mine.first, mine.first + mine.count - 1, r.log.c_str(), r.most_kept,
                  kMicroBatches);
      std::fflush(stdout);
    }
    must(comm.barrier());
  }
  if (rank == 0) {
    std::printf("gradients are the serial ones bit for bit; bubble (n-1)/(m+n-1) = %.1f %%\n",
                100.0 * (n - 1) / (kMicroBatches + n - 1));
  }
  must(alone.destroy());
  must(back.destroy());
  must(comm.destroy());
}
