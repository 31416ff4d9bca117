// The search for rings and trees: golden results, and what must hold on every machine.
#include <cstdlib>
#include <filesystem>
#include <random>

#include "tests/topo/ring_check.hpp"
#include "topo/build.hpp"
#include "topo/check.hpp"

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

}  // namespace
}  // namespace treering::topo
