// The all-reduces in NCCL's shape are proven by the checker, and share programs as others do; and
// topologies as fabrics.
#include <gtest/gtest.h>

#include "algos/checker.hpp"
#include "sim/simulator.hpp"
#ifdef TR_HAVE_TOPOLOGY
#include "sim/topology_fabric.hpp"
#include "topo/read.hpp"
#endif

namespace treering::sim {
namespace {

HostMap hosts_of(int machines, int each) {
  std::vector<int> host;
  for (int r = 0; r < machines * each; ++r) host.push_back(r / each);
  return HostMap(host);
}

TEST(SimShapes, AreProven) {
  for (const char* name : kMachineAlgorithms) {
    for (const auto& [machines, each] : {std::pair{2, 1}, {2, 2}, {3, 2}, {4, 3}, {5, 4}}) {
      // The checker knows the two channels of a pair that the library has.
      for (int channels = 1; channels <= (std::string(name) == "rail_ring" ? 2 : 1); ++channels) {
        const Result<Workload> w = machine_workload(name, hosts_of(machines, each), channels, 4096);
        ASSERT_TRUE(w.ok());
        algos::Program program;
        program.chunks = static_cast<int>(w.value().chunk_bytes.size());
        for (int r = 0; r < machines * each; ++r) program.ranks.push_back(w.value().record(r));
        const Status status = algos::check(program, 1, 2);
        EXPECT_TRUE(status.ok()) << name << " " << machines << "x" << each << " " << channels
                                 << ": " << status.message();
      }
    }
  }
  // Of more channels: every message is sent and received.
  MachinesOptions o;
  o.machines = 5;
  o.per_machine = 3;
  const Result<SimResult> ring =
      simulate(machine_workload("rail_ring", hosts_of(5, 3), 4, 64 * 60).value(), Machines(o));
  ASSERT_TRUE(ring.ok()) << ring.status().message();
  EXPECT_EQ(ring.value().messages, 4u * 2 * 14 * 15);
  const Result<SimResult> tree =
      simulate(machine_workload("chain_tree", hosts_of(5, 3), 4, 64 * 8).value(), Machines(o));
  ASSERT_TRUE(tree.ok()) << tree.status().message();
  EXPECT_EQ(tree.value().messages, 8u * 2 * 14);
  EXPECT_FALSE(machine_workload("ring", hosts_of(2, 2), 1, 64).ok());
  EXPECT_FALSE(machine_workload("rail_ring", HostMap({0, 1, 0}), 1, 64).ok());
}

// Whether programs are shared or not must not be seen in any time.
TEST(SimShapes, SharingProgramsChangesNothing) {
  MachinesOptions o;
  o.machines = 6;
  o.per_machine = 4;
  o.local = {.latency_us = 1, .gb_s = 100};
  o.network = {.latency_us = 4, .overhead_us = 0.5, .gb_s = 20};
  o.core.reduce_us_per_byte = 1e-5;
  const auto hosts = std::make_shared<const HostMap>(hosts_of(6, 4));
  for (const char* name : {"ring", "tree", "halving_doubling", "two_level", "two_level_tree"}) {
    Workload w =
        workload_of(*algos::find_algorithm(Collective::kAllReduce, name), 24, 99'999, 0, hosts);
    w.slice_bytes = 1024;
    w.share_by_size = false;
    const Result<SimResult> apart = simulate(w, Machines(o));
    w.share_by_size = true;
    const Result<SimResult> shared = simulate(w, Machines(o));
    ASSERT_TRUE(apart.ok() && shared.ok()) << name;
    EXPECT_EQ(apart.value().rank_us, shared.value().rank_us) << name;
    EXPECT_EQ(apart.value().messages, shared.value().messages) << name;
  }
}

#ifdef TR_HAVE_TOPOLOGY
std::unique_ptr<Fabric> fabric_of(const std::string& file, int machines) {
  const Result<topo::Graph> graph = topo::read_file(std::string(TOPO_DATA) + "/" + file);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  TopologyOptions o;
  o.machines = machines;
  o.network.latency_us = 5;
  Result<std::unique_ptr<Fabric>> fabric = topology_fabric(graph.value(), o);
  EXPECT_TRUE(fabric.ok()) << fabric.status().message();
  return fabric.ok() ? std::move(fabric).value() : nullptr;
}

// A ring over a machine takes what its narrowest link lets through; the sockets' is shared.
TEST(SimShapes, LinksOfATopologyAreShared) {
  const std::unique_ptr<Fabric> fabric = fabric_of("aws-p4d.24xl-ofi.xml", 1);
  ASSERT_NE(fabric, nullptr);
  ASSERT_EQ(fabric->ranks(), 8);
  const std::uint64_t bytes = 8 * (16 << 20);
  const Result<SimResult> r = simulate(
      workload_of(*algos::find_algorithm(Collective::kAllGather, "ring"), 8, bytes), *fabric);
  ASSERT_TRUE(r.ok()) << r.status().message();
  double most = 0;
  for (std::size_t i = 0; i < r.value().loads.size(); ++i) {
    most = std::max(most, r.value().loads[i].busy_us);
  }
  EXPECT_GE(r.value().time_us, most);
  // 10 GB/s is the most that rings reach there (treering topo --rings), in one direction 5.
  EXPECT_GE(r.value().time_us, 7.0 * (16 << 20) / 10'000);
}

TEST(SimShapes, MachinesOfATopologyMeetAtTheirNics) {
  const std::unique_ptr<Fabric> fabric = fabric_of("aws-p4d.24xl-ofi.xml", 3);
  ASSERT_NE(fabric, nullptr);
  ASSERT_EQ(fabric->ranks(), 24);
  std::vector<int> ports;
  for (int from = 0; from < 8; ++from) {
    const Route route = fabric->route(from, 8 + from);
    int nics = 0;
    for (const std::int32_t id : route.resources) {
      const std::string& name = fabric->resources()[id].name;
      const bool out = name.rfind("machine 0", 0) == 0 && name.ends_with(" out");
      nics += out;
      if (out) ports.push_back(id);
    }
    EXPECT_EQ(nics, 1);
    EXPECT_EQ(route.latency_us, 5);
  }
  // 4 NICs, two GPUs each.
  for (const int port : ports) EXPECT_EQ(std::count(ports.begin(), ports.end(), port), 2);
}
#endif

}  // namespace
}  // namespace treering::sim
