// Defects by kind: each test breaks a sound description in one way.
#include "tests/topo/util.hpp"

namespace treering::topo {
namespace {

// Two sockets, each with a switch, two GPUs and a NIC; a ring of double NVLinks.
// across: with links between the sockets.
std::string machine(bool across = true) {
  std::string text = "<system version=\"1\">\n";
  const char* masks[] = {"000000ff", "0000ff00"};
  for (int socket = 0; socket < 2; ++socket) {
    const std::string bus = std::to_string(socket + 1);
    text += "<cpu numaid=\"" + std::to_string(socket) + "\" affinity=\"" + masks[socket] +
            "\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n"
            "<pci busid=\"0000:" +
            bus +
            "0:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" "
            "link_width=\"16\">\n";
    for (int i = 0; i < 2; ++i) {
      const int gpu = socket * 2 + i;
      const auto address = [](int g) {
        return "0000:" + std::to_string(g / 2 + 1) + std::to_string(g % 2 + 1) + ":00.0";
      };
      text += "<pci busid=\"" + address(gpu) +
              "\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
              "link_width=\"16\"><gpu dev=\"" +
              std::to_string(gpu) + "\" sm=\"90\" rank=\"" + std::to_string(gpu) + "\" gdr=\"1\">";
      for (int step : {1, 3}) {
        if (!across && (gpu + step) % 4 / 2 != socket) continue;
        text += "<nvlink target=\"" + address((gpu + step) % 4) +
                "\" count=\"2\" tclass=\"0x030200\"/>";
      }
      text += "</gpu></pci>\n";
    }
    text += "<pci busid=\"0000:" + bus +
            "9:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" "
            "link_width=\"16\"><nic><net name=\"mlx5_" +
            std::to_string(socket) + "\" dev=\"" + std::to_string(socket) +
            "\" speed=\"400000\" port=\"1\" guid=\"0x" + bus +
            "\" gdr=\"1\"/></nic></pci>\n</pci></cpu>\n";
  }
  return text + "</system>\n";
}

TEST(Defect, NoneInASoundFile) {
  const Graph graph = graph_of(machine());
  EXPECT_EQ(findings_of(graph, Severity::kDefect), std::set<std::string>());
  EXPECT_EQ(findings_of(graph, Severity::kAssumption), std::set<std::string>{"socket bandwidth"});
  EXPECT_EQ(findings_of(graph, Severity::kNote), std::set<std::string>{"uneven NICs"});  // 4 and 2
  EXPECT_EQ(pair_of(graph, "GPU0", "GPU1"), "NV2 41.2");
  EXPECT_EQ(pair_of(graph, "GPU0", "GPU2"), "SYS 22");
  EXPECT_EQ(pair_of(graph, "GPU0", "mlx5_0"), "PIX 48");
}

struct Variant {
  FindingKind kind;
  const char* from;
  const char* to;
  const char* says;  // in the sentence
};

class Broken : public testing::TestWithParam<Variant> {};

TEST_P(Broken, IsFoundAndSaidInASentence) {
  const Variant& variant = GetParam();
  const Graph graph = graph_of(replaced(machine(), variant.from, variant.to));
  const std::string text = text_of(graph, variant.kind);
  EXPECT_NE(text.find(variant.says), std::string::npos)
      << finding_name(variant.kind) << ": '" << text << "'";
  EXPECT_FALSE(graph_of(machine()).has(variant.kind)) << "also in the sound file";
}

INSTANTIATE_TEST_SUITE_P(
    Topo, Broken,
    testing::Values(
        Variant{FindingKind::kSelfLink, "<gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\">",
                "<gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\"><nvlink target=\"0000:11:00.0\" "
                "count=\"4\"/>",
                "4 NVLink links of GPU0 lead back to the GPU itself"},
        Variant{FindingKind::kDanglingLink, "<nvlink target=\"0000:12:00.0\"",
                "<nvlink target=\"0000:77:00.0\"", "lead to 0000:77:00.0, which is not described"},
        Variant{FindingKind::kOneSidedLink,
                "rank=\"1\" gdr=\"1\"><nvlink target=\"0000:21:00.0\" count=\"2\"",
                "rank=\"1\" gdr=\"1\"><nvlink target=\"0000:21:00.0\" count=\"1\"",
                "GPU1 and GPU2 disagree on the NVLink links between them (1 and 2)"},
        Variant{FindingKind::kBadValue, "count=\"2\"", "count=\"200\"", "no GPU has that"},
        Variant{FindingKind::kBadValue, "affinity=\"000000ff\"", "affinity=\"xyz\"",
                "CPU mask of NUMA 0, 'xyz', cannot be read"},
        Variant{FindingKind::kBadValue, "busid=\"0000:19:00.0\"", "busid=\"nowhere\"",
                "'nowhere' is no PCI address"},
        Variant{FindingKind::kUnitError, "speed=\"400000\"", "speed=\"400\"",
                "'400 Mbit/s' of mlx5_0 and mlx5_1 makes no sense; taken as 400 Gbit/s"},
        Variant{FindingKind::kUnitError, "speed=\"400000\"", "speed=\"400000000000\"",
                "taken as 400 Gbit/s"},
        Variant{FindingKind::kUnitError, "32.0 GT/s PCIe", "32000", "taken as 32 GT/s"},
        Variant{FindingKind::kUnitError, "32.0 GT/s PCIe", "32 Gb/s", "taken as 32 GT/s"},
        Variant{FindingKind::kOverlappingMasks, "0000ff00", "0000ffff",
                "NUMA 0 and NUMA 1 overlap (CPU 0 is in several)"},
        Variant{FindingKind::kDuplicateBusId, "busid=\"0000:12:00.0\"", "busid=\"0000:11:00.0\"",
                "GPU0 and GPU1 have one PCI address, 0000:11:00.0"},
        Variant{FindingKind::kDuplicateNumber, "dev=\"1\" sm", "dev=\"0\" sm",
                "2 GPUs are number 0"},
        Variant{FindingKind::kDuplicateNumber, "numaid=\"1\"", "numaid=\"0\"",
                "NUMA node 0 is described 2 times"},
        Variant{FindingKind::kVirtualInterface, "</pci></cpu>",
                "</pci><nic><net name=\"docker0\" speed=\"10000\"/></nic></cpu>",
                "docker0 and docker0 have no hardware"},
        Variant{FindingKind::kFakeBridge, "busid=\"0000:10:00.0\"", "busid=\"ffff:ff:01.0\"",
                "PCI switch ffff:ff:01.0 exist in no machine"},
        Variant{FindingKind::kSpeedUnknown, "link_speed=\"32.0 GT/s PCIe\"",
                "link_speed=\"Unknown speed\"", "assumed 16 GT/s x16 (24 GB/s)"},
        Variant{FindingKind::kSpeedUnknown, "link_width=\"16\"", "link_width=\"0\"",
                "assumed 32 GT/s x16 (48 GB/s)"},
        Variant{FindingKind::kNumaUnknown, "numaid=\"1\"", "numaid=\"-1\"", "has numaid '-1'"},
        Variant{FindingKind::kNumaGap, "numaid=\"1\"", "numaid=\"3\"", "NUMA node 1, 2 is not"},
        Variant{FindingKind::kCpusUnknown, "affinity=\"0000ff00\"", "", "the CPUs of NUMA 1"},
        Variant{FindingKind::kNvlinkAssumed, "sm=\"90\"", "", "assumed 20 GB/s a link"},
        Variant{FindingKind::kUnevenLinks, "<nvlink target=\"0000:12:00.0\" count=\"2\"",
                "<nvlink target=\"0000:12:00.0\" count=\"1\"", "differ in width"},
        Variant{FindingKind::kNicOrder, "dev=\"0\" speed", "dev=\"7\" speed",
                "GPU1 is beside mlx5_0, but GPU2 beside mlx5_1"},
        Variant{FindingKind::kSlowNic, "speed=\"400000\"", "speed=\"1000\"",
                "mlx5_0 and mlx5_1 have 10 Gbit/s or less"},
        Variant{FindingKind::kNicNotOnPci, "</pci></cpu>",
                "</pci><nic><net name=\"eth0\" speed=\"100000\"/></nic></cpu>",
                "hang at no PCI device; assumed to be at NUMA 0"},
        Variant{FindingKind::kSharedCard, "<net name=\"mlx5_0\"",
                "<net name=\"mlx5_9\" speed=\"400000\"/><net name=\"mlx5_0\"",
                "mlx5_9 and mlx5_0 are ports of one card, 0000:19:00.0"},
        Variant{FindingKind::kPartitioned, "</gpu></pci>",
                "</gpu><gpu dev=\"9\" sm=\"90\" mlopart=\"1\"/></pci>", "parts of GPUs"},
        Variant{FindingKind::kUnknownPart, "</pci></cpu>", "</pci><dpu/></cpu>",
                "<dpu> in <cpu> is not known here and left out (2 times)"}));

TEST(Defect, IslandsAreNamed) {
  const Graph graph = graph_of(machine(false));
  EXPECT_EQ(text_of(graph, FindingKind::kIslands),
            "the GPUs' links leave 2 islands: GPU0 and GPU1; GPU2 and GPU3; between them data "
            "crosses PCIe or the CPUs");
  EXPECT_FALSE(graph.has(FindingKind::kMissingLink));
}

// A link that only one end lists is assumed to be there.
TEST(Defect, OneSidedLinkIsKept) {
  const Graph graph = graph_of(replaced(
      machine(),
      "rank=\"0\" gdr=\"1\"><nvlink target=\"0000:12:00.0\" count=\"2\" tclass=\"0x030200\"/>",
      "rank=\"0\" gdr=\"1\">"));
  EXPECT_NE(text_of(graph, FindingKind::kOneSidedLink).find("only one of GPU0 and GPU1"),
            std::string::npos);
  EXPECT_EQ(pair_of(graph, "GPU0", "GPU1"), "NV2 41.2");
}

TEST(Defect, VirtualInterfacesAreNoEndpoints) {
  const Graph graph = graph_of(replaced(
      machine(), "</pci></cpu>", "</pci><nic><net name=\"veth12\" speed=\"10000\"/></nic></cpu>"));
  EXPECT_EQ(graph.endpoints().size(), 6u);
}

// NVSwitches have no address of their own; C2C is in MB/s a link.
TEST(Nccl, SwitchAndC2c) {
  std::string text = replaced(machine(), "target=\"0000:12:00.0\"", "target=\"fffffff:ff:ff.0\"");
  for (const char* target : {"0000:11:00.0", "0000:21:00.0", "0000:22:00.0"}) {
    text = replaced(text, std::string("target=\"") + target, "target=\"fffffff:ff:ff.0");
  }
  text = replaced(text, "tclass=\"0x030200\"", "tclass=\"0x068000\"");
  text = replaced(text, "</gpu>", "<c2c bw=\"56376\" count=\"7\"/></gpu>");
  const Graph graph = graph_of(text);
  EXPECT_EQ(graph.all(NodeKind::kNvSwitch).size(), 1u);
  EXPECT_EQ(pair_of(graph, "GPU0", "GPU2"), "NV4 82.4");
  const LinkId c2c =
      graph.find_link(node_named(graph, "GPU3"), node_named(graph, "NUMA 1"), LinkKind::kC2c);
  ASSERT_NE(c2c, kNone);
  EXPECT_EQ(format_gb_s(graph.link(c2c).a_to_b_gb_s), "395");
}

// A NIC at the upper of two switches: two switches on its way to the GPU, so PXB; three to the
// other.
TEST(Nccl, SwitchesOnTheWayAreCounted) {
  const std::string device = "link_speed=\"16 GT/s\" link_width=\"16\"/>";
  const std::string bridge = "class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"8\">";
  const Graph graph = graph_of(
      "<system><cpu numaid=\"0\" affinity=\"f\"><pci busid=\"0000:01:00.0\" " + bridge +
      "<pci busid=\"0000:02:00.0\" class=\"0x020700\" " + device + "<pci busid=\"0000:03:00.0\" " +
      bridge + "<pci busid=\"0000:04:00.0\" class=\"0x030200\" " + device +
      "</pci><pci busid=\"0000:05:00.0\" " + bridge +
      "<pci busid=\"0000:06:00.0\" class=\"0x030200\" " + device + "</pci></pci></cpu></system>");
  EXPECT_EQ(pair_of(graph, "GPU0", "0000:02:00.0"), "PXB 12");
  EXPECT_EQ(pair_of(graph, "GPU0", "GPU1"), "PXB 12");
}

TEST(Nccl, SeveralHostsAreACluster) {
  std::string text = replaced(machine(), "numaid=\"0\"", "numaid=\"0\" host_hash=\"0xa\"");
  text = replaced(text, "numaid=\"1\"", "numaid=\"0\" host_hash=\"0xb\"");
  const Graph graph = graph_of(text);
  EXPECT_EQ(graph.all(NodeKind::kMachine).size(), 2u);
  EXPECT_FALSE(graph.has(FindingKind::kDuplicateNumber));
}

TEST(Cluster, DefectsAreFound) {
  const auto findings = [](const std::string& text) {
    return findings_of(graph_of(text), Severity::kDefect);
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(findings("switches:\n  a:\n    switches: [b]\n  b:\n    switches: [a]\n"
                     "blocks:\n- switch: a\n  nodes: [\"n[1-2]\"]\n"),
            Names{"contradiction"});
  EXPECT_EQ(findings("switches:\n  a:\n    switches: [c]\n  b:\n    switches: [c]\n"
                     "blocks:\n- switch: c\n  nodes: [n1, n2]\n"),
            Names{"contradiction"});
  EXPECT_EQ(findings("switches:\n  a:\n    switches: [c]\nblocks:\n- switch: z\n  nodes: [n1]\n"),
            Names{"dangling link"});
  EXPECT_EQ(findings("blocks:\n- nodes: [n1, n1]\n"), Names{"duplicate number"});
  EXPECT_NE(refusal("blocks:\n- nodes: [\"n[5-1]\"]\n").find("no list of nodes"),
            std::string::npos);
  EXPECT_NE(refusal("blocks:\n- nodes: [\"n[1-9999999]\"]\n").find("more than"), std::string::npos);
  EXPECT_NE(refusal("blocks:\n  - a\n bad\n").find("line 3"), std::string::npos);
  EXPECT_NE(refusal("blocks: &x\n").find("anchors"), std::string::npos);
}

// The older form, and nodes on two rails: links to two switches, one of them the parent.
TEST(Cluster, OlderModelsAndRails) {
  const Graph graph = graph_of(R"(
switches:
- name: core
  switches: [leaf-0, leaf-1]
- name: leaf-0
  capacity_blocks: [b0]
- name: leaf-1
  capacity_blocks: [b1]
capacity_blocks:
- name: b0
  nvlink: nvl0
  nodes: ["n[08-11]"]
- name: b1
  nvlink: nvl0
  nodes: ["n[08-11]"]
)");
  EXPECT_EQ(graph.all(NodeKind::kMachine).size(), 4u);
  EXPECT_NE(
      graph.find_link(node_named(graph, "n08"), node_named(graph, "leaf-0"), LinkKind::kNetwork),
      kNone);
  EXPECT_NE(
      graph.find_link(node_named(graph, "n08"), node_named(graph, "leaf-1"), LinkKind::kNetwork),
      kNone);
  EXPECT_EQ(pair_of(graph, "n08", "n11"), "NV1 2887");
}

}  // namespace
}  // namespace treering::topo
