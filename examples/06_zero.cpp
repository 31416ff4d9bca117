// Lesson 6: ZeRO. Data parallelism keeps n copies of everything. ZeRO keeps one, and sends the same
// bytes (Rajbhandari et al., SC 2020): an all-reduce is a reduce-scatter and an all-gather, and
// what lies between the two need not be whole on any rank.
//
//   stage 1   each rank steps a 1/n slice: reduce-scatter gradients, step, all-gather parameters
//   stage 2   and keeps only its slice of the gradients
//   stage 3   and only its slice of the parameters: a layer is gathered before it is used and freed
//             after, forward and again backward: half as many bytes more
//
// All stages here take the same steps as plain data parallelism, bit for bit: sums fold in rank
// order, and the optimizer works element by element.
//
//   treering run -n 4 -- 06_zero
#include <cstdio>
#include <vector>

#include "treering/treering.hpp"

#include "lesson.hpp"
#include "must.hpp"

using example::check;
using example::must;
using lesson::Matrix;
using lesson::Net;

constexpr int kLayers = 4, kWidth = 48, kRows = 64, kSteps = 3;
constexpr float kLr = 0.05f, kMomentum = 0.9f;

struct Result {
  std::vector<float> parameters;
  long long sent = 0, kept = 0;  // elements, by this rank: sent in all; kept between steps
};

struct Run {
  tr::Communicator& comm;
  Matrix x;
  int n = comm.size(), rank = comm.rank();
  // Flat and padded, so that every rank's slice is equally long.
  std::size_t layer = static_cast<std::size_t>(kWidth) * kWidth;
  std::size_t slice = (layer + n - 1) / n, padded = slice * n;
  Result result = {};

  void step_slice(float* w, const float* g, float* v, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) w[i] -= kLr * (v[i] = kMomentum * v[i] + g[i]);
  }
  std::vector<float> gather(const std::vector<float>& mine) {
    std::vector<float> whole(padded);
    must(comm.all_gather(mine, whole));
    result.sent += static_cast<long long>(padded - slice);
    return whole;
  }
  std::vector<float> scatter_sum(std::vector<float> whole) {
    whole.resize(padded);
    std::vector<float> mine(slice);
    must(comm.reduce_scatter(whole, mine, tr::kSum));
    result.sent += static_cast<long long>(padded - slice);
    return mine;
  }
  std::vector<float> slice_of(std::vector<float> whole) const {
    whole.resize(padded);
    return {whole.begin() + static_cast<std::ptrdiff_t>(slice * rank),
            whole.begin() + static_cast<std::ptrdiff_t>(slice * (rank + 1))};
  }
  Result train(int stage);
};

Result Run::train(int stage) {
  Net net = lesson::make_net(kLayers, kWidth);
  std::vector<std::vector<float>> w(kLayers), v(kLayers);  // slices; v: all of it with stage 0
  for (int l = 0; l < kLayers; ++l) {
    if (stage == 3) w[l] = slice_of(net[l].x);
    v[l].resize(stage > 0 ? slice : layer);
    if (stage == 3) net[l].x.clear();
  }
  for (int s = 0; s < kSteps; ++s) {
    std::vector<Matrix> a = {x};
    for (int l = 0; l < kLayers; ++l) {
      if (stage == 3) net[l].x = gather(w[l]), net[l].x.resize(layer);
      Matrix z = product(a.back(), net[l]);
      a.push_back(l + 1 < kLayers ? lesson::relu(std::move(z)) : std::move(z));
      if (stage == 3) net[l].x.clear();
    }
    Matrix d = lesson::loss_gradient(a.back(), kRows);
    for (int l = kLayers - 1; l >= 0; --l) {
      if (stage == 3) net[l].x = gather(w[l]), net[l].x.resize(layer);
      if (l + 1 < kLayers) d = lesson::relu_backward(std::move(d), a[l + 1]);
      Matrix dW = product(transposed(a[l]), d);
      if (l > 0) d = product(d, transposed(net[l]));
      if (stage == 0) {
        must(comm.all_reduce(dW.x, tr::kSum));
        result.sent += 2 * static_cast<long long>(padded - slice);
        step_slice(net[l].x.data(), dW.x.data(), v[l].data(), layer);
        continue;
      }
      // Gradients of this layer are needed no longer: stage 1 would keep them until all are there.
      const std::vector<float> g = scatter_sum(std::move(dW.x));
      if (stage < 3) w[l] = slice_of(net[l].x);
      step_slice(w[l].data(), g.data(), v[l].data(), slice);
      if (stage < 3) net[l].x = gather(w[l]), net[l].x.resize(layer);
      if (stage == 3) net[l].x.clear();
    }
  }
  for (int l = 0; l < kLayers; ++l) {
    std::vector<float> whole = net[l].x;
    if (stage == 3) {
      whole.resize(padded);
      must(comm.all_gather(w[l], whole));
      whole.resize(layer);
    }
    result.parameters.insert(result.parameters.end(), whole.begin(), whole.end());
    const std::size_t parameters = stage == 3 ? slice : layer,
                      gradients = stage >= 2 ? slice : layer;
    result.kept += static_cast<long long>(parameters + gradients + v[l].size());
  }
  return std::move(result);
}

int main() {
  tr::Communicator comm = must(tr::Communicator::from_env());
  must(comm.set_option(TR_OPT_ORDERED, 1));
  const lesson::Share mine = lesson::share(kRows, comm.rank(), comm.size());
  const Matrix x = lesson::row_range(lesson::random(kRows, kWidth, 100), mine.first, mine.count);

  std::vector<float> plain;
  for (int stage = 0; stage <= 3; ++stage) {
    const Result result = Run{comm, x}.train(stage);
    if (stage == 0) plain = result.parameters;
    check(result.parameters == plain, "every stage takes the same steps, bit for bit");
    if (comm.rank() == 0) {
      std::printf("ZeRO-%d: sent %7lld bytes a step and rank, keeps %7lld bytes\n", stage,
                  result.sent * 4 / kSteps, result.kept * 4);
    }
  }
  if (comm.rank() == 0) std::printf("parameters after %d steps are equal bit for bit\n", kSteps);
  must(comm.destroy());
}
