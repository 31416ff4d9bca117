// Lesson 7: a parameter server against an all-reduce. Before all-reduce was common, one rank kept
// the parameters: workers pushed gradients to it and pulled parameters back (Li et al., "Scaling
// Distributed Machine Learning with the Parameter Server", OSDI 2014).
//
// Both do the same sum. But the server's link carries n - 1 gradients in and n - 1 parameter sets
// out, 2 (n-1) S bytes, while a ring gives every rank 2 (n-1)/n S: with more workers the server
// gets slower, and the ring does not. What the server can do that an all-reduce cannot: workers
// need not wait for each other. It then steps with gradients of older parameters, and no two runs
// are the same: the second half shows it.
//
//   treering run -n 4 -- 07_parameter_server
#include <chrono>
#include <cstdio>
#include <vector>

#include "treering/treering.hpp"

#include "lesson.hpp"
#include "must.hpp"

using example::check;
using example::must;
using Vector = std::vector<float>;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kElements = 1 << 18;  // 1 MiB of gradients
constexpr int kSteps = 10;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Push, sum at the server, pull: what reduce and broadcast do when the root does all the work.
void server_step(tr::Communicator& comm, const Vector& gradient, Vector& sum) {
  if (comm.rank() == 0) {
    sum = gradient;
    Vector from(kElements);
    for (int q = 1; q < comm.size(); ++q) {
      must(comm.recv(from, q));
      for (std::size_t i = 0; i < kElements; ++i) sum[i] += from[i];
    }
    for (int q = 1; q < comm.size(); ++q) must(comm.send(sum, q));
  } else {
    must(comm.send(gradient, 0));
    must(comm.recv(sum, 0));
  }
}

template <class Step>
double mean_ms(tr::Communicator& comm, Step step) {
  step();  // links are made
  must(comm.barrier());
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kSteps; ++i) step();
  return ms_since(start) / kSteps;
}

// Workers minimise (w - rank)^2 together, each at its own pace, with the server stepping at every
// push. How stale a gradient was: steps that the server took since the worker's pull.
void asynchronous(tr::Communicator& comm) {
  constexpr int kPushes = 50;
  const int n = comm.size();
  if (comm.rank() > 0) {
    Vector w(1);
    for (int i = 0; i < kPushes; ++i) {
      must(comm.recv(w, 0));
      w[0] = 2 * (w[0] - static_cast<float>(comm.rank()));
      must(comm.send(w, 0));
    }
    return;
  }
  // Without any-source receives the server asks its workers in turn; each gradient is then n - 2
  // steps old.
  Vector w(1), g(1);
  std::vector<int> pulled_at(static_cast<std::size_t>(n));
  int step = 0, worst = 0;
  for (int q = 1; q < n; ++q) must(comm.send(w, q));
  for (int i = 0; i < kPushes; ++i) {
    for (int q = 1; q < n; ++q) {
      must(comm.recv(g, q));
      worst = std::max(worst, step - pulled_at[static_cast<std::size_t>(q)]);
      w[0] -= 0.1f * g[0];
      pulled_at[static_cast<std::size_t>(q)] = ++step;
      if (i + 1 < kPushes) must(comm.send(w, q));
    }
  }
  std::printf("asynchronous: w = %.3f where the best is %.3f; gradients up to %d steps old\n",
              static_cast<double>(w[0]), n / 2.0, worst);
  check(std::abs(w[0] - n / 2.0) < 0.25 * n, "stale gradients still lead near the minimum");
}

int main() {
  tr::Communicator comm = must(tr::Communicator::from_env());
  const int n = comm.size();
  Vector gradient(kElements, static_cast<float>(comm.rank() + 1)), server(kElements),
      ring(kElements);
  const double server_ms = mean_ms(comm, [&] { server_step(comm, gradient, server); });
  if (n > 1) must(comm.set_algorithm("all_reduce", "ring"));
  const double ring_ms = mean_ms(comm, [&] { must(comm.all_reduce(gradient, ring, tr::kSum)); });
  check(server == ring && ring[0] == static_cast<float>(n * (n + 1) / 2), "both are the sum");
  if (comm.rank() == 0) {
    const double mib = kElements * sizeof(float) / 1048576.0;
    std::printf("%d ranks, %.0f MiB of gradients\n", n, mib);
    std::printf("server:     rank 0 moves 2 (n-1) S   = %4.1f MiB, %6.2f ms a step\n",
                2 * (n - 1) * mib, server_ms);
    std::printf("all-reduce: each moves   2 (n-1)/n S = %4.1f MiB, %6.2f ms a step\n",
                2.0 * (n - 1) / n * mib, ring_ms);
  }
  if (n > 1) asynchronous(comm);
  must(comm.destroy());
}
