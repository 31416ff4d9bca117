// The search for rings and trees: golden results, and what must hold on every machine.
#include <cstdlib>
#include <filesystem>
#include <random>

#include "tests/topo/made_machine.hpp"
#include "tests/topo/ring_check.hpp"

namespace treering::topo {
namespace {

RingPlan rings_of(const Graph& graph, int machines = 1) {
  SearchOptions options;
  options.machines = machines;
  Result<RingPlan> plan = find_rings(graph, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? std::move(plan).value() : RingPlan();
}

// Nine tenths of what no rings can exceed, and all that follows from the plan itself. A cut bounds
// any way to send; rings must also return and pass each member once, which the proof knows.
void expect_good(const Graph& graph, int machines) {
  SCOPED_TRACE(graph.name + " x " + std::to_string(machines));
  const bool outside = machines > 1;
  const RingPlan plan = rings_of(graph, machines);
  expect_sound_rings(graph, plan, outside);
  if (testing::Test::HasFatalFailure() || plan.rings.empty()) return;
  expect_same(plan, rings_of(graph, machines));
  EXPECT_LE(plan.steps, 200'000'000) << "less than a second";
  double bound = cut_bound(graph, plan, outside);
  EXPECT_LE(plan.gb_s, bound * 1.00001);
  if (plan.members.size() <= 8 && plan.group_sizes.empty()) {
    expect_proof(graph, plan, outside);
    EXPECT_EQ(plan.direct_only, direct_ring_exists(graph, plan.members, outside));
    bound = std::min(bound, plan.bound_gb_s);
  }
  EXPECT_GE(plan.gb_s, 0.9 * bound);
  SearchOptions options;
  options.machines = machines;
  expect_sound_trees(graph, plan, find_trees(graph, plan, options), machines);
}

bool has_nics(const Graph& graph) {
  for (NodeId nic : graph.all(NodeKind::kNic)) {
    if (graph.at(nic).usable) return true;
  }
  return false;
}

void expect_good_everywhere(const Graph& graph) {
  const bool cluster = graph.all(NodeKind::kMachine).size() > 1;
  if (!cluster && graph.all(NodeKind::kGpu).size() < 2) {
    EXPECT_FALSE(find_rings(graph, {}).ok());
    return;
  }
  expect_good(graph, 1);
  if (cluster || !has_nics(graph)) return;
  for (int machines : {2, 5, 1024}) expect_good(graph, machines);
}

TEST(Search, HoldsOnEveryFileHere) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TOPO_DATA)) {
    if (entry.path().extension() == ".md") continue;
    expect_good_everywhere(
        graph_of(data(entry.path().filename().string()), entry.path().filename().string()));
    ++files;
  }
  EXPECT_GE(files, 13);
}

// Of a folder of further descriptions: TR_TEST_TOPOLOGIES.
TEST(Search, HoldsOnFurtherFiles) {
  const char* folder = std::getenv("TR_TEST_TOPOLOGIES");
  if (folder == nullptr) GTEST_SKIP() << "TR_TEST_TOPOLOGIES names no folder of descriptions";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Result<Graph> graph = read_file(entry.path().string());
    if (graph.ok()) expect_good_everywhere(graph.value());
  }
}

// Printed seeds: one fails again alone.
TEST(Search, HoldsOnRandomMachines) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Graph graph = random_machine(random, 7);
    expect_good(graph, 1);
    expect_good(graph, 1 + static_cast<int>(seed % 6 + 1));
    if (testing::Test::HasFailure()) return;
  }
}

// Beyond what is exact nothing is proven, and that is said.
TEST(Search, MoreGpusThanAreExact) {
  std::mt19937_64 random(7);
  Graph graph = random_machine(random, 2);
  while (graph.all(NodeKind::kGpu).size() < 24) graph = random_machine(random, 40);
  const RingPlan plan = rings_of(graph);
  expect_sound_rings(graph, plan, false);
  EXPECT_LE(plan.steps, 650'000'000) << "what is begun is ended";
  EXPECT_EQ(plan.bound_gb_s, 0);
  EXPECT_NE(plan.reasons[1].find("there may be better rings"), std::string::npos);
}

struct Golden {
  const char* name;
  Graph graph;
  int machines;
  bool direct_only;
  std::size_t rings;
  double gb_s;
  const char* limit;  // of the first ring
  const char* first;  // the beginning of its reason
  const char* trees;  // the beginning of theirs
};

// Bandwidths by hand: a ring loads what a GPU or switch hangs at once each way, so the narrowest
// of these, or the sockets between halves, is the sum of all rings.
std::vector<Golden> goldens() {
  const auto file = [](const char* name) { return graph_of(data(name), name); };
  constexpr const char* kBinary = "double binary trees over the rings' orders";
  constexpr const char* kChains = "chains along the rings";
  std::vector<Golden> all;
  const auto add = [&](const char* name, Graph graph, int machines, bool direct, std::size_t rings,
                       double gb_s, const char* limit, const char* first, const char* trees) {
    all.push_back({name, std::move(graph), machines, direct, rings, gb_s, limit, first, trees});
  };
  // 4 NVLinks a GPU of 18 GB/s: two rings there and back use them all.
  add("cube mesh", mesh(8, 60, cube_mesh(false)), 1, true, 4, 4 * 18, "NVLink x1", "8 NV;",
      kChains);
  add("cube mesh of 6 links", mesh(8, 70, cube_mesh(true)), 1, true, 6, 6 * 20, "NVLink x", "8 NV;",
      kChains);
  add("NVSwitch", switched(8, 80, 12, 0), 1, true, 2, 12 * 20, "NVLink x12", "8 NV;", kBinary);
  add("NVSwitch, 5 machines", switched(8, 90, 18, 8), 5, true, 8, 8 * 12.5, "port of mlx5_",
      "7 NV, NICs PIX and PIX;", "double binary trees over 5 machines");
  add("NVSwitch, a NIC for two", switched(8, 90, 18, 4), 2, true, 4, 4 * 12.5, "port of mlx5_",
      "7 NV, NICs PIX and PIX;", "double binary trees over 2 machines");
  // 7 GPUs, all joined by one link: 6 links each.
  std::vector<GpuPair> seven;
  for (int a = 0; a < 7; ++a) {
    for (int b = a + 1; b < 7; ++b) seven.push_back({a, b, 1});
  }
  add("seven GPUs", mesh(7, 80, seven), 1, true, 6, 6 * 20, "NVLink x1", "7 NV;", kBinary);
  // A missing link makes a tree of what was a ring: PCIe closes it, at 12 GB/s each way.
  add("open ring", mesh(4, 80, {{0, 1, 4}, {1, 2, 4}, {2, 3, 4}}), 1, false, 2, 24, "PCIe",
      "3 NV, 1 PHB (GPU3 - GPU0);", kChains);
  // Two pairs: one GPU of each is where rings come, the other where they go, each at 12 GB/s.
  add("pairs", mesh(4, 80, {{0, 1, 12}, {2, 3, 12}}), 1, false, 2, 24, "PCIe", "2 NV, 2 PHB (",
      kBinary);
  add("two GPUs", mesh(2, 80, {{0, 1, 4}}), 1, true, 1, 80, "NVLink x4", "2 NV;", kBinary);
  add("azure-ncv4", file("azure-ncv4-azhpc.xml"), 1, false, 2, 24, "PCIe", "4 SYS (", kBinary);
  add("azure-ndv4", file("azure-ndv4-azhpc.xml"), 1, false, 2, 24, "PCIe", "4 PIX, 4 SYS (",
      kBinary);
  add("aws-p4d", file("aws-p4d.24xl-ofi.xml"), 1, false, 2, 10, "socket", "4 PIX, 2 PHB, 2 SYS (",
      kBinary);
  // Only once over the sockets, for the ring closes over the network.
  add("aws-p4d, 4 machines", file("aws-p4d.24xl-ofi.xml"), 4, false, 2, 12, "PCIe",
      "4 PIX, 2 PHB, 1 SYS (", "double binary trees over 4 machines");
  add("amd-3p", file("amd-3p_pcie-rccl.xml"), 1, false, 2, 16, "socket", "1 PHB, 2 SYS (", kBinary);
  add("dgx2", file("dgx2-v100x16-hwloc.xml"), 1, true, 2, 120, "NVLink x6", "16 NV;", kBinary);
  add("nvl72", file("cluster-nvl72-topograph.yaml"), 1, false, 18, 18 * 12.5, "network",
      "68 NV, 4 NET (", "double binary trees over the NVLink domains");
  add("small tree", file("cluster-small-tree-topograph.yaml"), 1, false, 6, 3 * 12.5, "network",
      "4 NV, 2 NET (", "double binary trees over the NVLink domains");
  return all;
}

TEST(Search, Goldens) {
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.name);
    const RingPlan plan = rings_of(golden.graph, golden.machines);
    ASSERT_FALSE(plan.rings.empty());
    EXPECT_EQ(plan.direct_only, golden.direct_only);
    EXPECT_EQ(plan.rings.size(), golden.rings);
    EXPECT_NEAR(plan.gb_s, golden.gb_s, 1e-3);
    EXPECT_NE(resource_name(golden.graph, plan.rings[0].limit).find(golden.limit),
              std::string::npos)
        << resource_name(golden.graph, plan.rings[0].limit);
    EXPECT_EQ(plan.rings[0].why.rfind(golden.first, 0), 0u) << plan.rings[0].why;
    SearchOptions options;
    options.machines = golden.machines;
    const TreePlan trees = find_trees(golden.graph, plan, options);
    EXPECT_EQ(trees.reasons.at(0).rfind(golden.trees, 0), 0u) << trees.reasons[0];
    if (golden.graph.all(NodeKind::kMachine).size() == 1)
      expect_good(golden.graph, golden.machines);
  }
}

TEST(Search, CubeMeshHasTwoRingsWithoutACommonLink) {
  const Graph graph = mesh(8, 60, cube_mesh(false));
  const RingPlan plan = rings_of(graph);
  std::set<std::pair<NodeId, NodeId>> ways;
  for (const Ring& ring : plan.rings) {
    for (std::size_t i = 0; i < 8; ++i) ways.insert({ring.order[i], ring.order[(i + 1) % 8]});
  }
  EXPECT_EQ(ways.size(), 2u * 16) << "16 links, each way once";
}

// Rails: with an end at a NIC on both sides, neighbouring machines meet on the same one; each NIC
// is near the GPU that it serves.
TEST(Search, RailsAreKept) {
  const Graph graph = switched(8, 90, 18, 8);
  const RingPlan plan = rings_of(graph, 4);
  std::set<NodeId> in, out;
  for (const Ring& ring : plan.rings) {
    in.insert(ring.nic_in);
    out.insert(ring.nic_out);
    EXPECT_EQ(best_path(graph, ring.nic_in, ring.order.front()).path, PathClass::kPix);
    EXPECT_EQ(best_path(graph, ring.order.back(), ring.nic_out).path, PathClass::kPix);
  }
  EXPECT_EQ(in.size(), 8u);
  EXPECT_EQ(out.size(), 8u);
  EXPECT_EQ(plan.reasons[1].find("odd number"), std::string::npos);
  EXPECT_NE(rings_of(graph, 5).reasons[1].find("odd number"), std::string::npos);
}

TEST(Search, ThousandMachinesTakeFewSteps) {
  // 64 leaves of 16 machines: one link each, so one ring there and back.
  const Graph plain = graph_of(cluster_yaml(64, 16, 0, 1));
  const RingPlan one = rings_of(plain);
  EXPECT_EQ(one.members.size(), 1024u);
  EXPECT_EQ(one.rings.size(), 2u);
  EXPECT_EQ(one.gb_s, 12.5);
  EXPECT_LE(one.steps, 1'000'000);
  // Each leaf an NVLink domain: all 16 links of it are used.
  const Graph domains = graph_of(cluster_yaml(64, 16, 16, 1));
  const RingPlan many = rings_of(domains);
  EXPECT_EQ(many.rings.size(), 16u);
  EXPECT_NEAR(many.gb_s, 16 * 12.5, 1e-9);
  EXPECT_LE(many.steps, 1'000'000);
  expect_sound_rings(domains, many, false);
  expect_sound_trees(domains, many, find_trees(domains, many, {}), 1);
}

// Machines of 4 domains of 8: from one domain to the next a ring stays on one place.
TEST(Search, DomainsMeetAtTheSamePlace) {
  const Graph graph = graph_of(cluster_yaml(4, 8, 8, 1));
  const RingPlan plan = rings_of(graph);
  EXPECT_EQ(plan.rings.size(), 8u);
  const auto number = [&](NodeId id) { return std::stoi(graph.at(id).name.substr(1)) - 1000; };
  for (const Ring& ring : plan.rings) {
    int crossings = 0;
    for (std::size_t i = 0; i < ring.order.size(); ++i) {
      const int a = number(ring.order[i]), b = number(ring.order[(i + 1) % ring.order.size()]);
      if (a / 8 == b / 8) continue;
      ++crossings;
      EXPECT_EQ(a % 8, b % 8);
    }
    EXPECT_EQ(crossings, 4);
  }
}

TEST(Search, ClustersUseAllRails) {
  const Graph graph = graph_of(cluster_yaml(4, 8, 0, 2));
  const RingPlan plan = rings_of(graph);
  EXPECT_EQ(plan.rings.size(), 4u);
  EXPECT_EQ(plan.gb_s, 2 * 12.5);
  expect_sound_rings(graph, plan, false);
  EXPECT_NEAR(cut_bound(graph, plan, false), 2 * 12.5, 1e-6);
}

TEST(Search, OfLittleTimeIsStillSound) {
  SearchOptions options;
  options.max_steps = 1;
  const Graph graph = mesh(8, 60, cube_mesh(false));
  const Result<RingPlan> plan = find_rings(graph, options);
  ASSERT_TRUE(plan.ok());
  expect_sound_rings(graph, plan.value(), false);
  EXPECT_EQ(plan.value().bound_gb_s, 0);
  EXPECT_NE(plan.value().reasons[1].find("ended the search"), std::string::npos);
}

TEST(Search, RefusesWithItsReason) {
  const auto refusal_of = [](const Graph& graph, int machines) {
    SearchOptions options;
    options.machines = machines;
    const Result<RingPlan> plan = find_rings(graph, options);
    return plan.ok() ? "" : plan.status().message();
  };
  EXPECT_NE(refusal_of(mesh(1, 80, {}), 1).find("one GPU"), std::string::npos);
  EXPECT_NE(refusal_of(graph_of(data("aws-g5.48xl-ofi.xml")), 1).find("no GPUs"),
            std::string::npos);
  EXPECT_NE(refusal_of(mesh(4, 80, {}), 2).find("no NIC"), std::string::npos);
  EXPECT_NE(refusal_of(mesh(65, 80, {}), 1).find("more than 64 GPUs"), std::string::npos);
  EXPECT_NE(refusal_of(graph_of(data("cluster-nvl72-topograph.yaml")), 2).find("several machines"),
            std::string::npos);
  EXPECT_EQ(refusal_of(switched(1, 80, 12, 1), 2), "");
}

}  // namespace
}  // namespace treering::topo
