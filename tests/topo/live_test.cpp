// Live detection, on machines made of directories and on a driver that plays NVIDIA's.
#include "topo/live.hpp"

#include <pthread.h>

#include "core/deadline.hpp"
#include "tests/topo/fake_root.hpp"
#include "tests/topo/util.hpp"
#include "topo/core_distance.hpp"

namespace treering::topo {
namespace {

Graph live(const FakeRoot& root, const std::string& nvml = "") {
  LiveOptions options;
  options.root = root.path();
  options.nvml = nvml;
  return read_live(options);
}

NodeId with_address(const Graph& graph, const std::string& bus_id) {
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    if (graph.at(id).bus_id == bus_id) return id;
  }
  ADD_FAILURE() << "no device " << bus_id;
  return 0;
}

class FakeMachine : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Topo, FakeMachine,
                         testing::Values("azure-ndv4-azhpc.xml", "aws-p4d.24xl-ofi.xml"));

// What a file says of a machine is what is found on it.
TEST_P(FakeMachine, IsFoundAsTheFileHasIt) {
  const Graph file = graph_of(data(GetParam()));
  FakeRoot root;
  root.write_machine(file);
  const Graph found = live(root);
  for (NodeKind kind : {NodeKind::kGpu, NodeKind::kNic, NodeKind::kNuma, NodeKind::kPciSwitch}) {
    EXPECT_EQ(found.all(kind).size(), file.all(kind).size()) << node_kind_name(kind);
  }
  const std::vector<NodeId> ends = file.endpoints();
  for (NodeId a : ends) {
    for (NodeId b : ends) {
      const Path expected = tree_path(file, a, b);
      const Path path = tree_path(found, with_address(found, file.at(a).bus_id),
                                  with_address(found, file.at(b).bus_id));
      EXPECT_EQ(path_label(path), path_label(expected)) << file.at(a).name << file.at(b).name;
      if (path.path != PathClass::kSys) {
        EXPECT_EQ(path.gb_s, expected.gb_s);
      }
    }
    EXPECT_EQ(found.at(with_address(found, file.at(a).bus_id)).port_gbit_s, file.at(a).port_gbit_s);
  }
  EXPECT_EQ(found.at(node_named(found, "NUMA 1")).cpus.to_list(), "24-27");
  EXPECT_EQ(found.at(node_named(found, "NUMA 0")).cpu_vendor, "AuthenticAMD");
  EXPECT_EQ(found.at(node_named(found, "L3 32 MiB")).cache_bytes, 32 << 20);
  EXPECT_FALSE(found.has(FindingKind::kSpeedUnknown));
}

TEST(Live, AnEmptyMachineIsAssumedAndSaid) {
  FakeRoot root;
  const Graph graph = live(root);
  EXPECT_EQ(graph.all(NodeKind::kNuma).size(), 1u);
  EXPECT_TRUE(graph.has(FindingKind::kNumaUnknown));
  EXPECT_TRUE(graph.has(FindingKind::kHidden));
  EXPECT_TRUE(graph.has(FindingKind::kCpusUnknown));
}

// A virtual machine that hides where devices are and how fast.
TEST(Live, HiddenNumaNodesAndSpeedsAreAssumed) {
  FakeRoot root;
  root.write_machine(graph_of(data("azure-ndv4-azhpc.xml")));
  root.write("proc/cpuinfo",
             "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t: fpu hypervisor sse");
  const std::string device = "sys/bus/pci/devices/0003:00:00.0";
  root.write(device + "/numa_node", "-1");
  root.write(device + "/max_link_speed", "Unknown");
  root.write(device + "/current_link_speed", "Unknown");
  root.write("sys/bus/pci/devices/000c:00:00.0/current_link_width", "4");
  // Asleep: that is no defect.
  root.write("sys/bus/pci/devices/000b:00:00.0/current_link_speed", "2.5 GT/s PCIe");
  const Graph graph = live(root);
  EXPECT_NE(text_of(graph, FindingKind::kSpeedUnknown).find("GPU"), std::string::npos);
  EXPECT_NE(text_of(graph, FindingKind::kHidden).find("virtual machine"), std::string::npos);
  EXPECT_NE(text_of(graph, FindingKind::kDegradedLink).find("000c:00:00.0 (x4 of x16)"),
            std::string::npos);
  EXPECT_EQ(
      tree_path(graph, with_address(graph, "000c:00:00.0"), with_address(graph, "000b:00:00.0"))
          .gb_s,
      6);
}

TEST(Live, InterfacesOfSoftwareAreNotUsed) {
  FakeRoot root;
  root.write_machine(graph_of(data("aws-p4d.24xl-ofi.xml")));
  root.write("sys/devices/virtual/net/docker0/speed", "10000");
  root.link("sys/class/net/docker0", "sys/devices/virtual/net/docker0");
  root.write("sys/devices/vmbus/eth0/speed", "50000");
  root.link("sys/class/net/eth0", "sys/devices/vmbus/eth0");
  const Graph graph = live(root);
  EXPECT_FALSE(graph.at(node_named(graph, "docker0")).usable);
  EXPECT_TRUE(graph.at(node_named(graph, "eth0")).usable);
  EXPECT_EQ(graph.at(node_named(graph, "eth0")).port_gbit_s, 50);
  EXPECT_TRUE(graph.has(FindingKind::kVirtualInterface));
  EXPECT_NE(text_of(graph, FindingKind::kNicNotOnPci).find("eth0"), std::string::npos);
}

// fake_nvml.cpp: GPUs 0 to 2 of a p4d with NVSwitch and C2C, and one that sysfs does not show.
TEST(Live, TheDriverAddsLinksAndTakesGpusAway) {
  FakeRoot root;
  root.write_machine(graph_of(data("aws-p4d.24xl-ofi.xml")));
  const Graph graph = live(root, TOPO_FAKE_NVML);
  EXPECT_EQ(graph.all(NodeKind::kGpu).size(), 4u);
  EXPECT_EQ(pair_of(graph, "GPU0", "GPU1"), "NV12 240");
  EXPECT_EQ(pair_of(graph, "GPU0", "GPU2"), "NV11 220");  // one link of GPU2 is down
  EXPECT_NE(text_of(graph, FindingKind::kMissingLink).find("GPU2"), std::string::npos);
  EXPECT_NE(text_of(graph, FindingKind::kPartitioned).find("GPU1"), std::string::npos);
  EXPECT_NE(text_of(graph, FindingKind::kNoPeerAccess).find("GPU0 and GPU1"), std::string::npos);
  EXPECT_NE(graph.find_link(node_named(graph, "GPU0"), node_named(graph, "NUMA 0"), LinkKind::kC2c),
            kNone);
  bool away = false, added = false;
  for (const Finding& it : graph.findings) {
    away = away ||
           (it.kind == FindingKind::kHidden && it.text.find("0000:20:1d.0") != std::string::npos);
    added = added || (it.kind == FindingKind::kHidden &&
                      it.text.find("sysfs does not show GPU3") != std::string::npos);
  }
  EXPECT_TRUE(away);
  EXPECT_TRUE(added);
}

TEST(Live, NoDriverIsSaidOnlyWhereThereAreGpus) {
  FakeRoot with, without;
  with.write_machine(graph_of(data("aws-p4d.24xl-ofi.xml")));
  const std::string nvml = "libtreering-no-such-library.so";
  EXPECT_NE(text_of(live(with, nvml), FindingKind::kGpusUndescribed).find(nvml), std::string::npos);
  EXPECT_FALSE(live(without, nvml).has(FindingKind::kGpusUndescribed));
}

TEST(CoreDistance, IsMeasuredOrLeftOpenWithinItsTime) {
  const CoreDistances none = measure_core_distances({0, 1}, Deadline::after_ms(0));
  EXPECT_EQ(none.between(0, 1), 0);
  const CoreDistances absent =
      measure_core_distances({0, CpuSet::kMaxCpus}, Deadline::after_ms(1000));
  EXPECT_EQ(absent.between(0, 1), 0);
  const CoreDistances same = measure_core_distances({0, 1}, Deadline::after_ms(2000));
  EXPECT_EQ(same.between(0, 1), same.between(1, 0));
}

TEST(CoreDistance, SamplesNeighboursAndFarOnes) {
  std::vector<int> cores(64);
  for (int i = 0; i < 64; ++i) cores[static_cast<std::size_t>(i)] = i;
  EXPECT_EQ(sample_cores(cores, 8), (std::vector<int>{0, 1, 15, 16, 31, 32, 47, 48}));
  EXPECT_EQ(sample_cores({3, 5}, 8), (std::vector<int>{3, 5}));
}

}  // namespace
}  // namespace treering::topo
