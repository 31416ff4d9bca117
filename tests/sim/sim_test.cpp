// The simulator on cases small enough to be computed by hand.
#include <cmath>
#include <gtest/gtest.h>

#include "algos/registry.hpp"
#include "sim/simulator.hpp"

namespace treering::sim {
namespace {

constexpr double kAlpha = 3.5;        // us
constexpr double kGbS = 2.0;          // 2000 bytes a us
constexpr double kBeta = 1 / 2000.0;  // us a byte

MachinesOptions flat(int ranks) {
  MachinesOptions o;
  o.machines = ranks;
  o.network.latency_us = kAlpha;
  o.network.gb_s = kGbS;
  return o;
}

Workload work(Collective c, const char* name, int ranks, std::uint64_t bytes, int root = 0) {
  const algos::Algorithm* a = algos::find_algorithm(c, name);
  EXPECT_NE(a, nullptr) << name;
  return workload_of(*a, ranks, bytes, root);
}

double time_of(const Workload& w, const MachinesOptions& o) {
  const Result<SimResult> r = simulate(w, Machines(o));
  EXPECT_TRUE(r.ok()) << r.status().message();
  return r.ok() ? r.value().time_us : NAN;
}

double near(double x) { return 1e-9 * x; }
#define EXPECT_TIME(expected, actual)        \
  do {                                       \
    const double want = (expected);          \
    EXPECT_NEAR(want, (actual), near(want)); \
  } while (0)

TEST(Sim, TwoRanksOneMessage) {
  for (const std::uint64_t bytes : {1u, 1000u, 1u << 20}) {
    EXPECT_TIME(kAlpha + static_cast<double>(bytes) * kBeta,
                time_of(work(Collective::kBroadcast, "ring", 2, bytes), flat(2)));
  }
}

TEST(Sim, ZeroBytesAreNoMessage) {
  const Result<SimResult> r =
      simulate(work(Collective::kBroadcast, "ring", 2, 0), Machines(flat(2)));
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r.value().time_us, 0);
  EXPECT_EQ(r.value().messages, 0u);
}

TEST(Sim, RingsTakeTheFormulasTime) {
  for (const int n : {2, 3, 5, 8, 16}) {
    const std::uint64_t bytes = 6400ull * static_cast<std::uint64_t>(n);
    MachinesOptions o = flat(n);
    EXPECT_TIME(2 * (n - 1) * (kAlpha + 6400 * kBeta),
                time_of(work(Collective::kAllReduce, "ring", n, bytes), o));
    EXPECT_TIME((n - 1) * (kAlpha + 6400 * kBeta),
                time_of(work(Collective::kAllGather, "ring", n, bytes), o));
    o.core.reduce_us_per_byte = 1e-3;  // of the first n-1 steps
    EXPECT_TIME(2 * (n - 1) * (kAlpha + 6400 * kBeta) + (n - 1) * 6.4,
                time_of(work(Collective::kAllReduce, "ring", n, bytes), o));
    o.core.reduce_us_per_byte = 0;
    o.network.overhead_us = 0.25;  // at both ends of each message
    EXPECT_TIME(2 * (n - 1) * (kAlpha + 6400 * kBeta + 0.5),
                time_of(work(Collective::kAllReduce, "ring", n, bytes), o));
  }
}

TEST(Sim, RecursiveAlgorithmsTakeTheFormulasTime) {
  for (const int n : {2, 4, 16, 32}) {
    const double s = 64.0 * n, log_n = std::log2(n);
    const auto bytes = static_cast<std::uint64_t>(s);
    EXPECT_TIME(log_n * (kAlpha + s * kBeta),
                time_of(work(Collective::kAllReduce, "recursive_doubling", n, bytes), flat(n)));
    Workload w = work(Collective::kAllReduce, "halving_doubling", n, bytes);
    w.merge = true;
    EXPECT_TIME(2 * log_n * kAlpha + 2 * (n - 1.0) / n * s * kBeta, time_of(w, flat(n)));
    EXPECT_TIME(log_n * (kAlpha + s * kBeta),
                time_of(work(Collective::kBroadcast, "binomial", n, bytes), flat(n)));
  }
}

TEST(Sim, MergedChunksAreOneMessage) {
  Workload w = work(Collective::kAllReduce, "halving_doubling", 8, 8 * 64);
  const Result<SimResult> apart = simulate(w, Machines(flat(8)));
  w.merge = true;
  const Result<SimResult> merged = simulate(w, Machines(flat(8)));
  ASSERT_TRUE(apart.ok() && merged.ok());
  EXPECT_EQ(apart.value().messages, 8u * 2 * 7);
  EXPECT_EQ(merged.value().messages, 8u * 2 * 3);
}

// What comes to one port together shares it.
TEST(Sim, IncastSharesThePort) {
  for (const int n : {2, 3, 9}) {
    const auto senders = static_cast<std::uint64_t>(n - 1);
    const Workload w = work(Collective::kGather, "direct", n, 5000ull * static_cast<unsigned>(n));
    EXPECT_TIME(kAlpha + 5000.0 * static_cast<double>(senders) * kBeta, time_of(w, flat(n)));
    MachinesOptions o = flat(n);
    o.network.gap_us = 10;  // longer than the bytes take
    EXPECT_TIME(kAlpha + 10.0 * static_cast<double>(senders), time_of(w, o));
    const Result<SimResult> r = simulate(w, Machines(flat(n)));
    ASSERT_TRUE(r.ok());
    const Machines machines(flat(n));
    for (std::size_t i = 0; i < machines.resources().size(); ++i) {
      const Load& load = r.value().loads[i];
      const bool root_in = machines.resources()[i].name == "machine 0 in";
      EXPECT_EQ(load.messages, root_in ? senders : load.messages) << machines.resources()[i].name;
      EXPECT_EQ(load.bytes, root_in ? 5000.0 * static_cast<double>(senders) : load.bytes);
    }
  }
}

// Two ranks of a machine share its NIC; with a NIC each they do not.
TEST(Sim, RanksShareNics) {
  MachinesOptions o = flat(2);
  o.per_machine = 2;
  o.local.latency_us = 1;
  // First 0 with 1 and 2 with 3 inside of the machines, then 0 with 2 and 1 with 3.
  const Workload w = work(Collective::kAllReduce, "recursive_doubling", 4, 8000);
  EXPECT_TIME(1 + kAlpha + 2 * 8000 * kBeta, time_of(w, o));
  o.nics = 2;
  EXPECT_TIME(1 + kAlpha + 8000 * kBeta, time_of(w, o));
}

TEST(Sim, UplinksAreShared) {
  MachinesOptions o = flat(4);
  o.leaf_machines = 2;
  o.spine_us = 2;
  const auto ring = [&](std::uint64_t bytes) {
    return time_of(work(Collective::kAllGather, "ring", 4, bytes), o);
  };
  // Of three hops two leave the leaf at most: at full bandwidth only their latency shows.
  EXPECT_TIME(3 * kAlpha + 2 * 2 + 3 * 4000 * kBeta, ring(16000));
  // 0 to 2 and 1 to 3, at the same time, over uplinks of a quarter of two ports.
  const Workload w = work(Collective::kAllReduce, "recursive_doubling", 4, 4000);
  o.oversubscription = 4;
  EXPECT_TIME(kAlpha + 4000 * kBeta + kAlpha + 2 + 2 * 4000 * kBeta * 2, time_of(w, o));
}

TEST(Sim, LargeMessagesShakeHands) {
  MachinesOptions o = flat(2);
  o.network.handshake_bytes = 4096;
  o.network.handshake_us = 7;
  EXPECT_TIME(kAlpha + 4095 * kBeta, time_of(work(Collective::kBroadcast, "ring", 2, 4095), o));
  EXPECT_TIME(7 + kAlpha + 4096 * kBeta, time_of(work(Collective::kBroadcast, "ring", 2, 4096), o));
}

// A chain of n ranks passes m slices on: the first takes all hops, the others follow.
TEST(Sim, RoundsArePipelined) {
  const int n = 5;
  const std::uint64_t slice = 1000, slices = 20;
  Workload w = work(Collective::kBroadcast, "ring", n, slice * slices);
  w.slice_bytes = slice;
  const double hop = kAlpha + 1000 * kBeta;
  EXPECT_TIME((n - 1) * hop + 19 * 1000 * kBeta, time_of(w, flat(n)));
  w.slices_per_round = 4;
  EXPECT_TIME((n - 1) * hop + 19 * 1000 * kBeta, time_of(w, flat(n)));
  // With one slot, a slice leaves when the one before it was received: a latency a slice.
  w.slices_per_round = 1;
  w.slots = 1;
  EXPECT_TIME((n - 1) * hop + 19 * hop, time_of(w, flat(n)));
}

TEST(Sim, TheRestOfManyRoundsFollowsAtTheirPace) {
  for (const char* name : {"tree", "ring"}) {
    Workload w = work(Collective::kAllReduce, name, 7, 7 * 64 * 1600);
    w.slice_bytes = 64;
    const Result<SimResult> whole = simulate(w, Machines(flat(7)));
    SimOptions few;
    few.max_slices = 20'000;
    const Result<SimResult> part = simulate(w, Machines(flat(7)), few);
    ASSERT_TRUE(whole.ok() && part.ok());
    EXPECT_EQ(whole.value().rounds, whole.value().simulated_rounds);
    EXPECT_LT(part.value().simulated_rounds, part.value().rounds);
    EXPECT_NEAR(part.value().time_us / whole.value().time_us, 1, 0.01) << name;
  }
}

// Both lanes of a tree's inner rank have work at the same time: on one core they take turns.
TEST(Sim, LanesShareACore) {
  MachinesOptions o = flat(3);
  o.core.step_us = 5;
  Workload w = work(Collective::kAllReduce, "tree", 3, 1280);
  w.slice_bytes = 64;
  const double one = time_of(w, o);
  o.core.one_core = false;
  EXPECT_LT(time_of(w, o), one);
}

TEST(Sim, CastsAreStoredOnceOrForEachReader) {
  MachinesOptions o = flat(1);
  o.per_machine = 5;
  o.local.latency_us = 1;
  o.core.link_write_us_per_byte = 0.01;
  const Workload w = work(Collective::kBroadcast, "direct", 5, 1000);
  EXPECT_TIME(4 * 10 + 1, time_of(w, o));
  o.core.casts_stored_once = true;
  EXPECT_TIME(10 + 1, time_of(w, o));
}

TEST(Sim, WindowsAreReadOverTheRoute) {
  MachinesOptions o = flat(2);
  // A signal of 64 bytes there, 4000 bytes read back, a signal there.
  const Result<SimResult> r =
      simulate(work(Collective::kAllGather, "window", 2, 8000), Machines(o));
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_TIME(2 * (kAlpha + 64 * kBeta) + kAlpha + 4000 * kBeta, r.value().time_us);
}

TEST(Sim, SaysWhoWaitsWhenASchedulesStandsStill) {
  Workload w = work(Collective::kAllReduce, "ring", 3, 192);
  const auto record = w.record;
  w.record = [record](int rank) {
    algos::Schedule s = record(rank);
    if (rank == 1) s.steps.clear();
    return s;
  };
  const Result<SimResult> r = simulate(w, Machines(flat(3)));
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.status().message().find("rank 2 waits at recv_reduce_send for a message 1->2"),
            std::string::npos)
      << r.status().message();
  EXPECT_FALSE(simulate(work(Collective::kAllReduce, "ring", 4, 64), Machines(flat(3))).ok());
}

}  // namespace
}  // namespace treering::sim
