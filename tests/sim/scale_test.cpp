// Scale as sizes, determinism, and that every algorithm of the registry runs.
#include <cmath>
#include <gtest/gtest.h>

#include "algos/registry.hpp"
#include "sim/simulator.hpp"

namespace treering::sim {
namespace {

MachinesOptions network(int machines, int per_machine = 1) {
  MachinesOptions o;
  o.machines = machines;
  o.per_machine = per_machine;
  o.local = {.latency_us = 1, .gb_s = 100};
  o.network = {.latency_us = 4, .overhead_us = 0.5, .gb_s = 20};
  o.core.reduce_us_per_byte = 1e-5;
  return o;
}

Workload work_of(Collective c, const char* name, int ranks, std::uint64_t bytes) {
  return workload_of(*algos::find_algorithm(c, name), ranks, bytes);
}

TEST(SimScale, ManyRanksOfARingShareAProgram) {
  const int n = 1024;
  const Workload w = work_of(Collective::kAllReduce, "ring", n, 64ull * n);
  const Result<Programs> programs = compile(w);
  ASSERT_TRUE(programs.ok());
  EXPECT_EQ(programs.value().programs.size(), 1u);
  EXPECT_EQ(programs.value().links.size(), 1024u);
  const Result<SimResult> r = simulate(w, programs.value(), Machines(network(n)));
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r.value().messages, 2ull * (n - 1) * n);
  const double step = 4 + 2 * 0.5 + 64 / 20000.0;
  EXPECT_NEAR(r.value().time_us, 2 * (n - 1) * step + (n - 1) * 64e-5, 1e-6 * r.value().time_us);
}

TEST(SimScale, TenThousandRanksOfATree) {
  const int n = 10'000;
  Workload w = work_of(Collective::kAllReduce, "tree", n, 1 << 20);
  w.slice_bytes = 64 << 10;
  const Result<SimResult> r = simulate(w, Machines(network(n / 8, 8)));
  ASSERT_TRUE(r.ok()) << r.status().message();
  // Up and down each of two trees: every rank but its root sends and receives each slice.
  EXPECT_EQ(r.value().messages, 2ull * 2 * (n - 1) * 8);
  EXPECT_EQ(r.value().rank_us.size(), static_cast<std::size_t>(n));
}

TEST(SimScale, TooManyLinksAreRefused) {
  const Result<SimResult> r =
      simulate(work_of(Collective::kAllReduce, "one_shot", 8192, 64), Machines(network(8192)));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), Code::kUnsupported);
}

TEST(SimScale, TheSameTwice) {
  const Workload w = work_of(Collective::kAllReduce, "halving_doubling", 96, 100'000);
  SimOptions options;
  options.max_spans = 1000;
  const Machines machines(network(24, 4));
  const Result<SimResult> a = simulate(w, machines, options), b = simulate(w, machines, options);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a.value().rank_us, b.value().rank_us);
  EXPECT_EQ(to_perfetto(a.value(), machines), to_perfetto(b.value(), machines));
}

// Every rank receives what it must: no time is shorter than latency and bytes of its port allow.
TEST(SimScale, EveryAlgorithmRunsAndNoneIsFasterThanItsBytes) {
  for (const algos::Algorithm& a : algos::all_algorithms()) {
    for (const int n : {2, 3, 8, 13}) {
      if (!a.supports(n)) continue;
      Workload w = workload_of(a, n, 13'000);
      w.slice_bytes = a.windows ? 0 : 640;
      MachinesOptions o = network(n);
      o.network.overhead_us = 0;
      o.core = {};
      const Result<SimResult> r = simulate(w, Machines(o));
      ASSERT_TRUE(r.ok()) << w.name << " " << n << ": " << r.status().message();
      double busiest = 0;
      for (const Load& load : r.value().loads) busiest = std::max(busiest, load.busy_us);
      EXPECT_GE(r.value().time_us + 1e-9, busiest + 4) << w.name << " " << n;
      EXPECT_GT(r.value().messages, 0u) << w.name;
    }
  }
}

TEST(SimScale, TimelinesHoldTheFirstSteps) {
  SimOptions options;
  options.max_spans = 5;
  const Machines machines(network(3));
  const Result<SimResult> r =
      simulate(work_of(Collective::kAllReduce, "ring", 3, 192), machines, options);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r.value().spans.size(), 5u);
  const std::string text = to_perfetto(r.value(), machines);
  EXPECT_NE(text.find("\"name\":\"rank 2 lane 0\""), std::string::npos);
  EXPECT_NE(text.find("\"name\":\"recv_reduce_send\""), std::string::npos) << text;
}

}  // namespace
}  // namespace treering::sim
