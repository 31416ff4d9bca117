// Real files: what their authors say they are (data/README.md), in numbers counted by hand.
#include "tests/topo/util.hpp"

namespace treering::topo {
namespace {

using Names = std::set<std::string>;

struct Pair {
  const char* a;
  const char* b;
  const char* path;  // class, and GB/s
};

struct Golden {
  const char* file;
  std::size_t gpus, nics, numa, switches;
  Names defects, notes;
  std::vector<Pair> pairs;
};

std::ostream& operator<<(std::ostream& out, const Golden& golden) { return out << golden.file; }

const std::vector<Golden>& goldens() {
  // PCIe 8, 16 GT/s x16 carry 12, 24 GB/s; AMD's sockets 16, Skylake's 10; NVLink 2 and xGMI of
  // gfx906 20 and 24 a link.
  static const std::vector<Golden> kGoldens = {
      {"azure-ncv4-azhpc.xml",
       4,
       1,
       4,
       0,
       {"self link"},
       {"NIC not on PCI", "uneven NICs"},
       {{"GPU0", "GPU1", "SYS 16"}, {"GPU0", "eth0", "PHB 24"}, {"GPU3", "eth0", "SYS 16"}}},
      {"azure-ndv4-azhpc.xml",
       8,
       8,
       4,
       4,
       {"fake bridge"},
       {},
       {{"GPU0", "GPU1", "PIX 24"},
        {"GPU1", "GPU2", "SYS 16"},
        {"GPU0", "0103:00:00.0", "PIX 24"}}},
      {"azure-ndv4-superbench-oldaffinity.xml",
       8,
       8,
       4,
       4,
       {"fake bridge", "overlapping masks"},
       {},
       {{"GPU0", "GPU1", "PIX 24"}}},
      {"aws-g5.48xl-ofi.xml", 0, 0, 2, 0, {}, {}, {}},
      {"aws-p4d.24xl-ofi.xml",
       8,
       4,
       2,
       4,
       {"fake bridge"},
       {"uneven NICs"},
       {{"GPU0", "GPU1", "PIX 12"},
        {"GPU1", "GPU2", "PHB 12"},
        {"GPU3", "GPU4", "SYS 10"},
        {"GPU6", "0000:a0:1b.0", "PIX 12"}}},
      {"aws-p5.48xl-ofi-2023.xml", 0, 0, 2, 8, {}, {}, {}},
      {"amd-3p_pcie-rccl.xml",
       3,
       1,
       2,
       3,
       {},
       {"odd GPUs", "uneven NICs"},
       {{"GPU0", "mlx5_0", "PHB 24"}, {"GPU0", "GPU1", "SYS 16"}, {"GPU1", "GPU2", "PHB 24"}}},
      {"amd-4p2h_2nic-rccl.xml",
       8,
       2,
       1,
       10,
       {},
       {"islands", "uneven NICs"},
       {{"GPU0", "GPU1", "NV1 24"}}},
      {"amd-8p1h_n1-rccl.xml", 8, 4, 2, 14, {}, {"uneven NICs", "uneven links"}, {}},
      {"amd-8p_rome_n2_2-rccl.xml",
       8,
       2,
       4,
       8,
       {},
       {"islands", "shared card", "uneven NICs"},
       {{"GPU0", "GPU1", "NV1 24"}, {"mlx5_0", "mlx5_1", "PIX 12.5"}}},
      {"dgx2-v100x16-hwloc.xml",
       16,
       0,
       2,
       12,
       {},
       {},
       {{"GPU0", "GPU15", "NV6 120"}, {"GPU3", "GPU4", "NV6 120"}}},
      {"cluster-nvl72-topograph.yaml",
       0,
       0,
       0,
       0,
       {},
       {},
       {{"node1101", "node1118", "NV1 2887"},
        {"node1101", "node1201", "NET 12.5"},
        {"node1101", "node2218", "NET 12.5"}}},
      {"cluster-small-tree-topograph.yaml",
       0,
       0,
       0,
       0,
       {},
       {},
       {{"I21", "I25", "NV1 2887"}, {"I25", "I34", "NET 12.5"}}}};
  return kGoldens;
}

class GoldenFile : public testing::TestWithParam<Golden> {};
INSTANTIATE_TEST_SUITE_P(Topo, GoldenFile, testing::ValuesIn(goldens()));

TEST_P(GoldenFile, HasItsPartsPathsAndDefects) {
  const Golden& golden = GetParam();
  const Graph graph = graph_of(data(golden.file), golden.file);
  EXPECT_EQ(graph.all(NodeKind::kGpu).size(), golden.gpus);
  EXPECT_EQ(graph.all(NodeKind::kNic).size(), golden.nics);
  EXPECT_EQ(graph.all(NodeKind::kNuma).size(), golden.numa);
  EXPECT_EQ(graph.all(NodeKind::kPciSwitch).size(), golden.switches);
  EXPECT_EQ(findings_of(graph, Severity::kDefect), golden.defects);
  EXPECT_EQ(findings_of(graph, Severity::kNote), golden.notes);
  for (const Pair& pair : golden.pairs) {
    EXPECT_EQ(pair_of(graph, pair.a, pair.b), pair.path) << pair.a << " to " << pair.b;
    EXPECT_EQ(pair_of(graph, pair.b, pair.a), pair.path) << pair.b << " to " << pair.a;
  }
}

// Every link has a bandwidth, and says where that comes from; what is assumed is reported.
TEST_P(GoldenFile, LeavesNothingOpen) {
  const Graph graph = graph_of(data(GetParam().file));
  for (const Link& link : graph.links) {
    EXPECT_GT(link.a_to_b_gb_s, 0);
    EXPECT_GT(link.b_to_a_gb_s, 0);
    EXPECT_NE(link.source, Source::kUnknown);
    if (link.source != Source::kAssumed) continue;
    const FindingKind kind = link.kind == LinkKind::kPci      ? FindingKind::kSpeedUnknown
                             : link.kind == LinkKind::kSocket ? FindingKind::kSocketAssumed
                             : link.kind == LinkKind::kNvlink ? FindingKind::kNvlinkAssumed
                                                              : FindingKind::kNetworkAssumed;
    EXPECT_TRUE(graph.has(kind)) << finding_name(kind);
  }
}

TEST(Nccl, UnreadableSpeedsAreAssumedByTheGpusGeneration) {
  const Graph graph = graph_of(data("azure-ncv4-azhpc.xml"));
  EXPECT_EQ(text_of(graph, FindingKind::kSpeedUnknown),
            "PCIe speed or width of GPU0, GPU1, GPU2 and GPU3 is not given; assumed 16 GT/s x16 "
            "(24 GB/s)");
  EXPECT_EQ(text_of(graph, FindingKind::kSelfLink),
            "12 NVLink links of GPU0, GPU1, GPU2 and GPU3 each lead back to the GPU itself; the "
            "true peers are unknown, so these links are left out");
}

TEST(Nccl, CpusOfMasks) {
  const Graph graph = graph_of(data("aws-p4d.24xl-ofi.xml"));
  EXPECT_EQ(graph.at(node_named(graph, "NUMA 0")).cpus.to_list(), "0-23,48-71");
  EXPECT_EQ(graph.at(node_named(graph, "NUMA 1")).cpus.to_list(), "24-47,72-95");
}

TEST(Nccl, DevicesWithoutClassAreNotGuessed) {
  const Graph graph = graph_of(data("aws-g5.48xl-ofi.xml"));
  EXPECT_EQ(graph.all(NodeKind::kPciDevice).size(), 9u);
  EXPECT_TRUE(graph.has(FindingKind::kKindUnknown));
  EXPECT_TRUE(graph.has(FindingKind::kGpusUndescribed));
  EXPECT_TRUE(graph.has(FindingKind::kCpusUnknown));
}

// Pairs of a DGX-2 below one switch are GPU 2i and 2i+1; beyond that several switches, then host
// bridges, then sockets.
TEST(Hwloc, PortsBecomeSwitches) {
  const Graph graph = graph_of(data("dgx2-v100x16-hwloc.xml"));
  const auto path = [&](const char* a, const char* b) {
    return std::string(
        path_class_name(tree_path(graph, node_named(graph, a), node_named(graph, b)).path));
  };
  EXPECT_EQ(path("GPU0", "GPU1"), "PIX");
  EXPECT_EQ(path("GPU1", "GPU2"), "PXB");
  EXPECT_EQ(path("GPU3", "GPU4"), "NODE");
  EXPECT_EQ(path("GPU7", "GPU8"), "SYS");
  EXPECT_EQ(tree_path(graph, node_named(graph, "GPU0"), node_named(graph, "GPU1")).gb_s, 12);
  EXPECT_EQ(graph.all(NodeKind::kNvSwitch).size(), 1u);
  EXPECT_EQ(graph.all(NodeKind::kCore).size(), 4u);
}

// Version 1 has NUMA nodes above cores, caches of type Cache, packages called Socket.
TEST(Hwloc, ReadsVersion1) {
  const Graph graph = graph_of(R"(<?xml version="1.0"?><topology>
    <object type="Machine" os_index="0" cpuset="0x0000000f">
     <object type="NUMANode" os_index="0" cpuset="0x00000003">
      <object type="Socket" os_index="0" cpuset="0x00000003">
       <object type="Cache" cpuset="0x00000003" cache_size="20971520" depth="3">
        <object type="Core" os_index="0" cpuset="0x00000001"/><object type="Core" os_index="1" cpuset="0x00000002"/>
       </object></object>
      <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-04]">
       <object type="Bridge" bridge_type="1-1" pci_busid="0000:00:02.0" pci_type="0604 [8086:2f04] [0000:0000] 02" pci_link_speed="15.753846">
        <object type="PCIDev" pci_busid="0000:03:00.0" pci_type="0302 [10de:102d] [10de:106c] a1" pci_link_speed="15.753846"/>
       </object>
       <object type="PCIDev" pci_busid="0000:04:00.0" pci_type="0207 [15b3:1013] [15b3:0003] 00" pci_link_speed="7.876923">
        <object type="OSDev" name="ib0" osdev_type="2"/><object type="OSDev" name="mlx5_0" osdev_type="3"/>
       </object></object></object>
     <object type="NUMANode" os_index="1" cpuset="0x0000000c"/>
    </object></topology>)");
  EXPECT_EQ(graph.all(NodeKind::kNuma).size(), 2u);
  EXPECT_EQ(graph.at(node_named(graph, "L3 20 MiB")).cpus.to_list(), "0-1");
  EXPECT_EQ(pair_of(graph, "GPU0", "mlx5_0"), "PHB 6");
  EXPECT_EQ(graph.ancestor(node_named(graph, "GPU0"), NodeKind::kNuma),
            node_named(graph, "NUMA 0"));
}

TEST(Cluster, IsATreeOfSwitchesWithDomains) {
  const Graph graph = graph_of(data("cluster-nvl72-topograph.yaml"));
  EXPECT_EQ(graph.all(NodeKind::kMachine).size(), 72u);
  EXPECT_EQ(graph.all(NodeKind::kNetSwitch).size(), 7u);
  EXPECT_EQ(graph.all(NodeKind::kNvSwitch).size(), 4u);
  // Four leaves and the core in between: up to the spine and over the core.
  const Path far = tree_path(graph, node_named(graph, "node1101"), node_named(graph, "node2101"));
  EXPECT_EQ(far.hops.size(), 6u);
  EXPECT_EQ(graph.link(graph.at(node_named(graph, "leaf-1-1")).uplink).a_to_b_gb_s, 18 * 12.5);
}

// What other files are is said, not guessed.
TEST(Refusal, SaysWhatTheFileIs) {
  EXPECT_NE(refusal("<graphs version=\"1\"><graph id=\"0\"/></graphs>").find("graph file of NCCL"),
            std::string::npos);
  const std::string whole = data("aws-p4d.24xl-ofi.xml");
  EXPECT_NE(refusal(whole.substr(0, whole.size() / 2)).find("is it cut off?"), std::string::npos);
  EXPECT_NE(refusal("{\"name\": \"x\", \"remote_alpha\": 2.6}").find("TACCL"), std::string::npos);
  EXPECT_NE(refusal("{\"nvlink_count\": {}}").find("link counts"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": [").find("cut off"), std::string::npos);
  EXPECT_NE(refusal("topology: [ Switch ]\nnpus_count: [ 8 ]\n").find("ASTRA-sim"),
            std::string::npos);
  EXPECT_NE(refusal("\tGPU0\tGPU1\tCPU Affinity\n").find("no row below"), std::string::npos);
  EXPECT_NE(refusal("<html/>").find("another kind"), std::string::npos);
  EXPECT_NE(refusal("<system version=\"1\"/>").find("no <cpu>"), std::string::npos);
  EXPECT_NE(refusal("hello").find("no format"), std::string::npos);
  EXPECT_NE(refusal("# only a comment\n").find("no format"), std::string::npos);
  EXPECT_NE(refusal("").find("empty"), std::string::npos);
  EXPECT_NE(refusal("0 1\n1\n").find("line 2 has 1 numbers"), std::string::npos);
  EXPECT_FALSE(read_file("/nonexistent").ok());
  EXPECT_FALSE(read_file("/").ok());
}

}  // namespace
}  // namespace treering::topo
