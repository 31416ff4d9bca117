// Training steps with made-up gradients: what a backward pass asks of a store, without a network.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <vector>

#include "treering/parallel/parameters.hpp"
#include "treering/parallel/rng.hpp"

#include "matrices.hpp"

namespace partest {

// One step's calls, layers forward and backward, the next layer prefetched while one is in use.
inline void synthetic_passes(
    tr::par::ParameterStore& store, const std::vector<tr::par::ParameterSpec>& parameters,
    int micro_batches,
    const std::function<void(int, const tr::par::ParameterSpec&, const View&)>& add) {
  const int layers = parameters.back().layer + 1;
  for (int m = 0; m < micro_batches; ++m) {
    for (int l = 0; l < layers; ++l) {
      must(store.acquire(l));
      if (l + 1 < layers) must(store.prefetch(l + 1));
      store.release(l);
    }
    for (int l = layers - 1; l >= 0; --l) {
      must(store.acquire(l));
      if (l > 0) must(store.prefetch(l - 1));
      for (const tr::par::ParameterSpec& p : parameters) {
        if (p.layer == l) add(m, p, must(store.gradient(p.number)));
      }
      store.release(l);
      if (m + 1 == micro_batches) must(store.ready(l));
    }
  }
}

// Adds random numbers that sums must round, told apart by `stream`.
inline void add_random(Compute& compute, std::uint64_t stream, const View& gradient) {
  Matrix x(gradient.rows, gradient.cols);
  for (std::size_t i = 0; i < x.x.size(); ++i)
    x.x[i] = tr::par::random_symmetric(5, stream, i) / 3.0;
  const Tensor more =
      must(Tensor::make(compute.memory(), Use::kBuffers, x.rows, x.cols, gradient.type));
  write(compute, x, more.view());
  must(compute.add(more.view(), gradient));
}

}  // namespace partest
