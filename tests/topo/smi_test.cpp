// nvidia-smi topo -m: layouts of several versions, and what is wrong with matrices.
#include "tests/topo/util.hpp"
#include "topo/compare.hpp"

namespace treering::topo {
namespace {

// A DGX-1: cube mesh of NVLink 2, both NICs at one socket. The layout before NUMA columns.
const std::string kCubeMesh = R"(
        GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  mlx5_0  mlx5_1  CPU Affinity
GPU0     X    NV2   NV2   NV1   NV1   SYS   SYS   SYS   NODE    NODE    0-23,48-71
GPU1    NV2    X    NV1   NV2   SYS   NV1   SYS   SYS   NODE    NODE    0-23,48-71
GPU2    NV2   NV1    X    NV1   SYS   SYS   NV2   SYS   PIX     PIX     0-23,48-71
GPU3    NV1   NV2   NV1    X    SYS   SYS   SYS   NV2   PIX     PIX     0-23,48-71
GPU4    NV1   SYS   SYS   SYS    X    NV2   NV2   NV1   SYS     SYS     24-47,72-95
GPU5    SYS   NV1   SYS   SYS   NV2    X    NV1   NV2   SYS     SYS     24-47,72-95
GPU6    SYS   SYS   NV2   SYS   NV2   NV1    X    NV1   SYS     SYS     24-47,72-95
GPU7    SYS   SYS   SYS   NV2   NV1   NV2   NV1    X    SYS     SYS     24-47,72-95
mlx5_0  NODE  NODE  PIX   PIX   SYS   SYS   SYS   SYS    X      PIX
mlx5_1  NODE  NODE  PIX   PIX   SYS   SYS   SYS   SYS   PIX      X
)";

TEST(Smi, CubeMeshHasItsLinks) {
  const Graph graph = graph_of(kCubeMesh);
  EXPECT_EQ(pair_of(graph, "GPU0", "GPU1"), "NV2 40");
  EXPECT_EQ(pair_of(graph, "GPU0", "GPU4"), "NV1 20");
  EXPECT_EQ(pair_of(graph, "GPU0", "GPU5"), "SYS 6");
  EXPECT_EQ(pair_of(graph, "GPU2", "mlx5_1"), "PIX 12");
  EXPECT_EQ(graph.all(NodeKind::kNvSwitch).size(), 0u);
  EXPECT_EQ(graph.at(node_named(graph, "NUMA 1")).cpus.to_list(), "24-47,72-95");
  EXPECT_EQ(findings_of(graph, Severity::kDefect), std::set<std::string>());
  EXPECT_TRUE(graph.has(FindingKind::kUnevenLinks));
  EXPECT_NE(text_of(graph, FindingKind::kUnevenNics).find("SYS for GPU4, GPU5, GPU6 and GPU7"),
            std::string::npos);
}

TEST(Smi, MissingRowsAreReportedAndFilledIn) {
  const Graph graph = graph_of(kCubeMesh.substr(0, kCubeMesh.find("GPU5    SYS")));
  EXPECT_EQ(findings_of(graph, Severity::kDefect).count("truncated"), 1u);
  EXPECT_NE(text_of(graph, FindingKind::kTruncated).find("GPU5, GPU6, GPU7, mlx5_0, mlx5_1"),
            std::string::npos);
  EXPECT_EQ(pair_of(graph, "GPU5", "GPU1"), "NV1 20");  // from GPU1's row
  EXPECT_EQ(graph.all(NodeKind::kGpu).size(), 8u);
}

// Each takes one truth out of the matrix above.
TEST(Smi, ContradictionsAreFound) {
  Graph graph = graph_of(replaced(kCubeMesh, "GPU1    NV2    X ", "GPU1    SYS    X "));
  EXPECT_NE(text_of(graph, FindingKind::kContradiction).find("GPU0 to GPU1 is NV, and back SYS"),
            std::string::npos);
  graph = graph_of(replaced(kCubeMesh, "GPU0     X ", "GPU0    PIX "));
  EXPECT_NE(text_of(graph, FindingKind::kContradiction).find("distance from itself"),
            std::string::npos);
  graph = graph_of(replaced(kCubeMesh, "GPU1    NV2    X ", "GPU1     X     X "));
  EXPECT_NE(text_of(graph, FindingKind::kContradiction).find("the same device (X)"),
            std::string::npos);
  // PIX is transitive, so this pair cannot be PXB.
  graph = graph_of(replaced(replaced(kCubeMesh, "SYS    X      PIX", "SYS    X      PXB"),
                            "SYS   PIX      X", "SYS   PXB      X"));
  EXPECT_NE(text_of(graph, FindingKind::kContradiction)
                .find("mlx5_0 and mlx5_1 are said to be PXB, the others' words make them PIX"),
            std::string::npos);
  EXPECT_EQ(pair_of(graph, "mlx5_0", "mlx5_1"), "PXB 24");
}

TEST(Smi, LinksThatDifferFromOthersAreMissing) {
  std::string text = replaced(kCubeMesh, "GPU0     X    NV2 ", "GPU0     X    SYS ");
  text = replaced(text, "GPU1    NV2    X ", "GPU1    SYS    X ");
  const Graph graph = graph_of(text);
  EXPECT_EQ(text_of(graph, FindingKind::kMissingLink),
            "GPU0 and GPU1 have 4 links to other GPUs, where most have 6: missing or switched off");
}

// More links than a GPU has must go to a switch.
TEST(Smi, SwitchIsToldFromDirectLinks) {
  const auto matrix = [](int gpus, const std::string& cell) {
    std::string text = "\x1b[4m";
    for (int i = 0; i < gpus; ++i) text += "\tGPU" + std::to_string(i);
    text += "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n";
    for (int i = 0; i < gpus; ++i) {
      text += "GPU" + std::to_string(i);
      for (int j = 0; j < gpus; ++j) text += i == j ? "\t X " : "\t" + cell;
      text += "\t0-71\t0,5-11\tN/A\n";
    }
    return text + "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing # NVLinks\n";
  };
  const Graph direct = graph_of(matrix(4, "NV6"));
  EXPECT_EQ(direct.all(NodeKind::kNvSwitch).size(), 0u);
  EXPECT_EQ(pair_of(direct, "GPU0", "GPU3"), "NV6 124");  // 18 links: sm_90, 20.6 each
  EXPECT_TRUE(direct.has(FindingKind::kNumaGap));         // a list of NUMA nodes
  const Graph switched = graph_of(matrix(8, "NV18"));
  EXPECT_EQ(switched.all(NodeKind::kNvSwitch).size(), 1u);
  EXPECT_EQ(pair_of(switched, "GPU0", "GPU7"), "NV18 371");
  EXPECT_EQ(switched.links.size(), 8u + 8u + 8u);  // to switch, PCIe, host bridges
}

TEST(Smi, NumaNotAvailableIsMadeUpFromPairs) {
  const Graph graph = graph_of(R"(
        GPU0    GPU1    GPU2    CPU Affinity    NUMA Affinity
GPU0     X      PIX     SYS     0-95            N/A
GPU1    PIX      X      SYS     0-95            N/A
GPU2    SYS     SYS      X      0-95            N/A
)");
  EXPECT_EQ(graph.all(NodeKind::kNuma).size(), 2u);
  EXPECT_TRUE(graph.has(FindingKind::kNumaUnknown));
  EXPECT_TRUE(graph.has(FindingKind::kOverlappingMasks));  // 0-95 cannot be near both
  EXPECT_TRUE(graph.has(FindingKind::kOddGpus));
  EXPECT_EQ(pair_of(graph, "GPU0", "GPU1"), "PIX 24");
}

// Pasted through a narrow terminal; the legend names NICs.
TEST(Smi, WrappedLinesAndLegend) {
  const Graph graph = graph_of(R"(
        GPU0    GPU1    NIC0
NIC1    CPU Affinity    NUMA Affinity
GPU0     X      NODE    PIX
NODE    0-15            0
GPU1    NODE     X      NODE    PXB
        0-15            0
NIC0    PIX     NODE     X      NODE
NIC1    NODE    PXB     NODE     X

NIC Legend:

  NIC0: mlx5_7
  NIC1: mlx5_2

ulimit soft: 1024
)");
  EXPECT_EQ(pair_of(graph, "GPU0", "mlx5_7"), "PIX 24");
  EXPECT_EQ(pair_of(graph, "GPU1", "mlx5_2"), "PXB 24");
  EXPECT_EQ(graph.at(node_named(graph, "NUMA 0")).cpus.to_list(), "0-15");
  EXPECT_EQ(findings_of(graph, Severity::kDefect), std::set<std::string>());
  EXPECT_FALSE(graph.has(FindingKind::kUnknownPart));
}

// What nvidia-smi prints on the machine whose XML has links that lead back to themselves.
TEST(Compare, ContradictoryFilesAreReported) {
  const std::string matrix = R"(
        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity
GPU0     X      NV12    SYS     SYS     0-23            0
GPU1    NV12     X      SYS     SYS     24-47           1
GPU2    SYS     SYS      X      NV12    48-70           2
GPU3    SYS     SYS     NV12     X      72-95           3
)";
  Graph graph = graph_of(data("azure-ncv4-azhpc.xml"));
  compare(graph, graph_of(data("azure-ncv4-azhpc.xml"), "itself"));
  EXPECT_FALSE(graph.has(FindingKind::kContradiction));
  compare(graph, graph_of(matrix, "matrix"));
  EXPECT_EQ(text_of(graph, FindingKind::kContradiction),
            "matrix says otherwise of 2 pairs of GPUs: GPU0 and GPU1 are SYS here, NV12 there");
  EXPECT_EQ(graph.findings.back().text,
            "matrix says otherwise of 1 GPU's CPUs: GPU2 is near CPUs 48-71 here, 48-70 there");
  compare(graph, graph_of(data("amd-3p_pcie-rccl.xml"), "other"));
  EXPECT_NE(graph.findings.back().text.find("other has 3 GPUs"), std::string::npos);
}

TEST(Smi, NumaAffinityThatContradictsDistance) {
  const Graph graph = graph_of(R"(
        GPU0    GPU1    CPU Affinity    NUMA Affinity
GPU0     X      PIX     0-15            0
GPU1    PIX      X      16-31           1
)");
  EXPECT_NE(text_of(graph, FindingKind::kContradiction).find("NUMA affinities are 1 and 0"),
            std::string::npos);
}

}  // namespace
}  // namespace treering::topo
