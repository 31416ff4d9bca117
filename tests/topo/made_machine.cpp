#include "tests/topo/made_machine.hpp"

#include "topo/build.hpp"
#include "topo/check.hpp"

namespace treering::topo {
namespace {

NodeId add_device(Graph& graph, NodeKind kind, const std::string& name, NodeId parent) {
  const NodeId id = graph.add(kind, name, parent);
  char bus_id[32];
  std::snprintf(bus_id, sizeof bus_id, "0000:%02x:00.0", id);
  graph.at(id).bus_id = bus_id;
  Link& link = graph.link(graph.join_to_parent(id, LinkKind::kPci));
  link.lane_gt_s = 8;
  link.width = 16;
  return id;
}

NodeId add_gpu(Graph& graph, int number, int sm, NodeId parent) {
  const NodeId id = add_device(graph, NodeKind::kGpu, "GPU" + std::to_string(number), parent);
  graph.at(id).number = number;
  graph.at(id).sm = sm;
  return id;
}

NodeId add_nic(Graph& graph, int number, double gbit_s, NodeId parent) {
  const NodeId id = add_device(graph, NodeKind::kNic, "mlx5_" + std::to_string(number), parent);
  graph.at(id).port_gbit_s = gbit_s;
  return id;
}

void join_gpus(Graph& graph, NodeId a, NodeId b, int links) {
  graph.link(graph.join(a, b, LinkKind::kNvlink)).width = links;
}

NodeId add_numa(Graph& graph, int number) {
  const NodeId id = graph.add(NodeKind::kNuma, "NUMA " + std::to_string(number), 0);
  graph.at(id).number = number;
  graph.at(id).cpu_vendor = "AuthenticAMD";
  return id;
}

}  // namespace

Graph mesh(int gpus, int sm, const std::vector<GpuPair>& pairs) {
  Graph graph;
  graph.name = "mesh";
  graph.add(NodeKind::kMachine, "machine", kNone);
  const NodeId numa = add_numa(graph, 0);
  std::vector<NodeId> ids;
  for (int i = 0; i < gpus; ++i) ids.push_back(add_gpu(graph, i, sm, numa));
  for (const GpuPair& pair : pairs) {
    join_gpus(graph, ids[static_cast<std::size_t>(pair.a)], ids[static_cast<std::size_t>(pair.b)],
              pair.links);
  }
  finish(graph);
  return graph;
}

Graph switched(int gpus, int sm, int links, int nics) {
  Graph graph;
  graph.name = "switched";
  graph.add(NodeKind::kMachine, "machine", kNone);
  const NodeId numa = add_numa(graph, 0);
  const NodeId nvswitch = graph.add(NodeKind::kNvSwitch, "NVSwitch", 0);
  for (int i = 0; i < gpus; ++i) {
    const NodeId pci = add_device(graph, NodeKind::kPciSwitch, "S" + std::to_string(i), numa);
    join_gpus(graph, add_gpu(graph, i, sm, pci), nvswitch, links);
    if (i < nics) add_nic(graph, i, 100, pci);
  }
  for (Link& link : graph.links) {
    if (link.kind == LinkKind::kPci) link.lane_gt_s = 16;
  }
  finish(graph);
  return graph;
}

std::vector<GpuPair> cube_mesh(bool volta) {
  std::vector<GpuPair> pairs;
  for (int square : {0, 4}) {
    for (int a = 0; a < 4; ++a) {
      for (int b = a + 1; b < 4; ++b) {
        const bool twice = (a == 0 && b == 3) || (a == 1 && b == 2) || (a == 2 && b == 3);
        pairs.push_back({square + a, square + b, volta && twice ? 2 : 1});
      }
    }
  }
  for (int a = 0; a < 4; ++a) pairs.push_back({a, a + 4, volta && a < 2 ? 2 : 1});
  return pairs;
}

Graph random_machine(std::mt19937_64& random, int most_gpus) {
  const auto pick = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<std::uint64_t>(to - from + 1));
  };
  Graph graph;
  graph.name = "random";
  graph.add(NodeKind::kMachine, "machine", kNone);
  std::vector<NodeId> numa, places;
  for (int i = pick(1, 4); i > 0; --i)
    numa.push_back(add_numa(graph, static_cast<int>(numa.size())));
  join_numa_nodes(graph, numa);
  places = numa;
  for (int i = pick(0, 5); i > 0; --i) {
    const NodeId above = places[random() % places.size()];
    places.push_back(add_device(graph, NodeKind::kPciSwitch, "S" + std::to_string(i), above));
  }
  std::vector<NodeId> gpus;
  for (int i = 0, n = pick(2, most_gpus); i < n; ++i) {
    gpus.push_back(add_gpu(graph, i, 80, places[random() % places.size()]));
  }
  for (int i = pick(1, 4); i > 0; --i) {
    constexpr double kSpeeds[] = {25, 100, 200, 400};
    add_nic(graph, i, kSpeeds[random() % 4], places[random() % places.size()]);
  }
  const int percent = pick(0, 2) * 40;  // of the pairs have NVLinks
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (std::size_t b = a + 1; b < gpus.size(); ++b) {
      if (pick(1, 100) <= percent) join_gpus(graph, gpus[a], gpus[b], pick(1, 4));
    }
  }
  finish(graph);
  return graph;
}

std::string cluster_yaml(int leaves, int machines_a_leaf, int domain, int rails) {
  std::string switches = "switches:\n  core:\n    switches: [spine0, spine1]\n";
  std::string blocks = "blocks:\n";
  std::string below[2];
  for (int leaf = 0; leaf < leaves; ++leaf) {
    for (int rail = 0; rail < rails; ++rail) {
      const std::string name = "leaf" + std::to_string(leaf) + "-" + std::to_string(rail);
      below[leaf % 2] += (below[leaf % 2].empty() ? "" : ", ") + name;
      const std::string number = std::to_string(leaf * machines_a_leaf + 1000);
      const std::string last = std::to_string((leaf + 1) * machines_a_leaf + 999);
      blocks += "  block" + name + ":\n    switch: " + name + "\n    nodes: [\"n[" + number + "-" +
                last + "]\"]\n";
      if (domain > 0)
        blocks += "    nvlink: domain" + std::to_string(leaf * machines_a_leaf / domain) + "\n";
    }
  }
  for (int spine : {0, 1}) {
    switches += "  spine" + std::to_string(spine) + ":\n    switches: [" + below[spine] + "]\n";
  }
  return switches + blocks;
}

}  // namespace treering::topo
