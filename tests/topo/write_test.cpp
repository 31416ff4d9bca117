// Writers, by reading back what they write; and the small parsers.
#include "topo/write.hpp"

#include "tests/topo/util.hpp"
#include "topo/cpu_set.hpp"
#include "topo/groups.hpp"
#include "topo/yaml.hpp"

namespace treering::topo {
namespace {

void expect_same_paths(const Graph& a, const Graph& b) {
  const std::vector<NodeId> ends = a.endpoints(), others = b.endpoints();
  ASSERT_EQ(ends.size(), others.size());
  const Paths paths_a(a), paths_b(b);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    EXPECT_EQ(a.at(ends[i]).name, b.at(others[i]).name);
    for (std::size_t j = 0; j < ends.size(); ++j) {
      const Path one = paths_a.best(ends[i], ends[j]), two = paths_b.best(others[i], others[j]);
      // NCCL's format has no host bridges, so it cannot tell NODE from PHB.
      const auto label = [](const Path& path) {
        return path.path == PathClass::kNode ? "PHB" : path_label(path);
      };
      EXPECT_EQ(label(one), label(two)) << a.at(ends[i]).name << " " << a.at(ends[j]).name;
      EXPECT_DOUBLE_EQ(one.gb_s, two.gb_s);
    }
  }
}

class RoundTrip : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Topo, RoundTrip,
                         testing::Values("azure-ndv4-azhpc.xml", "amd-8p1h_n1-rccl.xml",
                                         "amd-8p_rome_n2_2-rccl.xml", "dgx2-v100x16-hwloc.xml"));

TEST_P(RoundTrip, NcclXmlSaysTheSame) {
  const Graph graph = graph_of(data(GetParam()));
  const Result<std::string> xml = to_nccl_xml(graph);
  ASSERT_TRUE(xml.ok()) << xml.status().message();
  expect_same_paths(graph, graph_of(xml.value()));
}

TEST_P(RoundTrip, JsonSaysTheSame) {
  const Graph graph = graph_of(data(GetParam()));
  const std::string json = to_json(graph);
  const Graph again = graph_of(json, graph.name);
  expect_same_paths(graph, again);
  ASSERT_EQ(again.findings.size(), graph.findings.size());
  EXPECT_EQ(again.findings[0].text, graph.findings[0].text);
  const auto body = [](const std::string& text) { return text.substr(text.find("\"nodes\"")); };
  EXPECT_TRUE(body(to_json(again)) == body(json)) << "all but the head";
}

TEST(Json, ErrorsNameThePlace) {
  const std::string json = to_json(graph_of(data("amd-3p_pcie-rccl.xml")));
  EXPECT_NE(refusal(replaced(json, "\"version\": 1", "\"version\": 9")).find("version"),
            std::string::npos);
  EXPECT_NE(refusal(replaced(json, "\"parent\": 0", "\"parent\": 999")).find("node 1: parent"),
            std::string::npos);
  EXPECT_NE(
      refusal(replaced(json, "\"kind\": \"GPU\"", "\"kind\": \"cow\"")).find("'cow' is no kind"),
      std::string::npos);
  EXPECT_NE(
      refusal(replaced(json, "\"source\": \"derived\"", "\"source\": 3")).find("must be a text"),
      std::string::npos);
  EXPECT_NE(refusal(replaced(json, "\"nodes\"", "\"knots\"")).find("no nodes"), std::string::npos);
}

TEST(NcclXml, RefusesWhatItCannotSay) {
  const Result<std::string> cluster =
      to_nccl_xml(graph_of(data("cluster-small-tree-topograph.yaml")));
  EXPECT_NE(cluster.status().message().find("inside of machines"), std::string::npos);
  const Result<std::string> matrix = to_nccl_xml(
      graph_of("     GPU0 GPU1 CPU Affinity\nGPU0  X   PIX  0-3\nGPU1 PIX   X   0-3\n"));
  EXPECT_NE(matrix.status().message().find("no PCI address"), std::string::npos);
}

TEST(CpuSet, MasksAndLists) {
  EXPECT_EQ(CpuSet::from_mask("000000ff,ffff0000,00ffffff")->to_list(), "0-23,48-71");
  EXPECT_EQ(CpuSet::from_mask("0x00000001,,0x2")->to_list(), "1,64");
  EXPECT_EQ(CpuSet::from_list("1-1,3-3,5")->to_list(), "1,3,5");
  EXPECT_EQ(CpuSet::from_list("32-35")->to_mask(), "0000000f,00000000");
  for (const char* bad : {"x", "5-1", "-3", "0-99999999", "1,,2"}) {
    EXPECT_FALSE(CpuSet::from_list(bad)) << bad;
  }
  EXPECT_FALSE(CpuSet::from_mask("123456789"));
}

TEST(Text, BusIds) {
  EXPECT_EQ(canonical_bus_id("00000000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(canonical_bus_id("3b:0.1"), "0000:3b:00.1");
  EXPECT_EQ(canonical_bus_id("fffffff:ff:ff.0"), "fffffff:ff:ff.0");
  EXPECT_EQ(canonical_bus_id("0000:00:16"), "");
  EXPECT_TRUE(is_invented_bus_id("ffff:ff:01.0"));
  EXPECT_FALSE(is_invented_bus_id("0000:ff:01.0"));
  EXPECT_FALSE(is_invented_bus_id("10000:e1:00.0"));
}

// Two machines of two ranks, in two racks: 1 us, 5 us, 20 us, with noise of 10 %.
TEST(Groups, FollowFromDistances) {
  std::vector<double> distances(64);
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      const double base = i == j ? 0 : i / 2 == j / 2 ? 1 : i / 4 == j / 4 ? 5 : 20;
      distances[i * 8 + j] = base * (1 + 0.01 * static_cast<double>((i * 3 + j * 5) % 10));
    }
  }
  const std::vector<Level> levels = group_by_distance(distances, 8);
  ASSERT_EQ(levels.size(), 2u);
  EXPECT_EQ(levels[0].group, (std::vector<std::size_t>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(levels[1].group, (std::vector<std::size_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_TRUE(group_by_distance(std::vector<double>(16, 3.0), 4).empty());
}

TEST(Groups, AreReadFromAMatrix) {
  const Graph graph = graph_of("# us\n0 1 9 9\n1 0 9 9\n9 9 0 1\n9, 9, 1, 0\n");
  EXPECT_EQ(graph.all(NodeKind::kGroup).size(), 2u);
  EXPECT_EQ(graph.endpoints().size(), 4u);
  EXPECT_EQ(graph.at(node_named(graph, "rank 3")).parent, node_named(graph, "group 1"));
  EXPECT_EQ(graph.at(node_named(graph, "group 0")).distance_us, 1);
}

TEST(Yaml, WhatDescriptionsUse) {
  const Result<Yaml> yaml = parse_yaml(
      "a: 1 # one\nb:\n- x\n- y: 2\n  z: [p, 'q r', n[1-3]]\n-\n  - deep\nc: {k: v, l: [1]}\n'd "
      "e': \"#no\"\n");
  ASSERT_TRUE(yaml.ok()) << yaml.status().message();
  const Yaml& root = yaml.value();
  EXPECT_EQ(root.text("a"), "1");
  EXPECT_EQ(root.text("d e"), "#no");
  ASSERT_EQ(root.find("b")->items.size(), 3u);
  EXPECT_EQ(root.find("b")->items[1].texts("z"), (std::vector<std::string>{"p", "q r", "n[1-3]"}));
  EXPECT_EQ(root.find("b")->items[2].items[0].scalar, "deep");
  EXPECT_EQ(root.find("c")->text("k"), "v");
  for (const char* bad : {"a: [1", "a:\n\t- b", "a: |\n  x", "a: 1\n   b: 2", "- a\n b"}) {
    EXPECT_FALSE(parse_yaml(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace treering::topo
