#include "train/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "must.hpp"

namespace train {

using example::must;
using namespace tr::par;
using SteadyClock = std::chrono::steady_clock;

double step_flops(const Model& model, double rows) {
  double flops = 0.0;
  for (const LayerSpec& layer : model.layers()) {
    flops += 6.0 * rows * static_cast<double>(layer.in * layer.out * layer.positions);
  }
  const LayerSpec& first = model.layers().front();
  return flops - 2.0 * rows * static_cast<double>(first.in * first.out * first.positions);
}

double measured_gflops(Compute& compute) {
  constexpr std::int64_t n = 384;
  const auto make = [&] {
    Tensor t = must(Tensor::make(compute.memory(), Use::kBuffers, n, n, DType::kFloat32));
    must(compute.fill(t.view(), 0.5));
    return t;
  };
  const Tensor a = make(), b = make(), c = make();
  double best = 0.0;
  for (int i = 0; i < 5; ++i) {
    const auto start = SteadyClock::now();
    must(compute.multiply(Transpose::kNo, Transpose::kNo, a.view(), b.view(), c.view()));
    must(compute.synchronize());
    best =
        std::max(best, 2.0 * n * n * n /
                           std::chrono::duration<double>(SteadyClock::now() - start).count() / 1e9);
  }
  return best;
}

std::unique_ptr<Comm> Time::wrap(std::unique_ptr<Comm> world, const Options& options) {
  if (options.simulate_gbs.empty()) return trace_comm(std::move(world), trace);
  SimulatedLinks links;
  links.intra_bytes_per_us = options.simulate_gbs[0] * 1e3;
  links.inter_bytes_per_us = options.simulate_gbs[1] * 1e3;
  links.ranks_per_node = options.ranks_per_node > 0 ? options.ranks_per_node : world->size();
  clock_.emplace();
  trace = Trace(rank_, *clock_);
  return simulate_links(std::move(world), *clock_, links, &trace);
}

Compute& Time::wrap(Compute& compute, const Options& options) {
  if (!clock_) return compute;
  const double gflops = options.peak_gflops > 0 ? options.peak_gflops : kSimulatedGflops;
  simulated_ = simulate_compute(compute, *clock_, gflops * 1e3, &trace);
  return *simulated_;
}

}  // namespace train
