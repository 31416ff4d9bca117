#include "sim/topology_fabric.hpp"

#include <tuple>
#include <utility>
#include <vector>

#include "topo/paths.hpp"
#include "topo/search.hpp"

namespace treering::sim {
namespace {

using topo::Graph;
using topo::NodeId;
using topo::NodeKind;
using topo::PathClass;

std::vector<NodeId> members_of(const Graph& graph) {
  std::vector<NodeId> members = graph.all(NodeKind::kGpu);
  if (members.empty() && !graph.all(NodeKind::kCluster).empty()) {
    members = graph.all(NodeKind::kMachine);
  }
  return members;
}

// A way inside of one machine.
struct Way {
  std::vector<std::int32_t> resources;
  double latency_us = 0;
  bool is_network = false;  // of a cluster's machines
};

class TopologyFabric final : public Fabric {
 public:
  explicit TopologyFabric(const TopologyOptions& options) : options_(options) {}

  Status build(const Graph& graph) {
    const std::vector<NodeId> members = members_of(graph);
    each_ = static_cast<int>(members.size());
    if (each_ == 0) {
      return invalid_argument(graph.name +
                              " describes neither GPUs nor a cluster's machines: there is nothing "
                              "that ranks could be; give --per-machine instead of --topo");
    }
    const topo::Paths paths(graph);
    ways_.resize(members.size() * members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
      for (std::size_t j = 0; j < members.size(); ++j) {
        if (i == j) continue;
        const topo::Path path = paths.best(members[i], members[j]);
        if (path.hops.empty()) {
          return invalid_argument(graph.name + ": nothing joins " + graph.at(members[i]).name +
                                  " and " + graph.at(members[j]).name);
        }
        ways_[i * members.size() + j] = way(path);
      }
    }
    if (options_.machines > 1) TR_RETURN_IF_ERROR(find_nics(graph, paths, members));
    add_resources(graph);
    return {};
  }

  int ranks() const override { return options_.machines * each_; }
  const std::vector<Resource>& resources() const override { return resources_; }
  const CoreCosts& core() const override { return options_.core; }
  std::string place(int rank) const override { return "machine " + std::to_string(rank / each_); }

  Route route(int from, int to) const override {
    const int a = from / each_, b = to / each_;
    Route route;
    if (a == b) {
      const Way& w = ways_[static_cast<std::size_t>(from % each_ * each_ + to % each_)];
      add(route, w, a);
      if (w.is_network) apply_network(route, 0);
      return route;
    }
    const Exit& out = exits_[from % each_];
    const Exit& in = exits_[to % each_];
    add(route, out.out, a);
    route.resources.push_back(a * per_machine_ + 2 * links_ + 2 * out.nic);
    double spine_us = 0;
    const int leaf = options_.leaf_machines;
    if (leaf > 0 && a / leaf != b / leaf) {
      route.resources.push_back(first_leaf_ + 2 * (a / leaf));
      route.resources.push_back(first_leaf_ + 2 * (b / leaf) + 1);
      spine_us = options_.spine_us;
    }
    route.resources.push_back(b * per_machine_ + 2 * links_ + 2 * in.nic + 1);
    add(route, in.in, b);
    apply_network(route, spine_us);
    return route;
  }

 private:
  struct Exit {
    std::int32_t nic = 0;
    Way out, in;  // from the GPU to the NIC and back
  };

  Way way(const topo::Path& path) const {
    Way w;
    for (const topo::Hop& hop : path.hops) w.resources.push_back(2 * hop.link + !hop.a_to_b);
    w.is_network = path.path == PathClass::kNetwork;
    const bool direct = path.path == PathClass::kNvlink || path.path == PathClass::kC2c;
    const bool far = path.path == PathClass::kSys || path.path == PathClass::kNode;
    w.latency_us = w.is_network ? 0
                   : direct     ? options_.nvlink_us
                                : options_.pci_us * (far ? 1.5 : 1);
    return w;
  }

  void add(Route& route, const Way& w, int machine) const {
    for (const std::int32_t r : w.resources) {
      route.resources.push_back(machine * per_machine_ + r);
    }
    route.latency_us += w.latency_us;
  }

  // The way to the NIC is part of what the network's latency is.
  void apply_network(Route& route, double spine_us) const {
    const Hop& n = options_.network;
    route.latency_us = n.latency_us + spine_us;
    route.send_us = route.recv_us = n.overhead_us;
    route.bytes_per_us = n.stream_gb_s * kBytesPerUs;
    route.handshake_bytes = n.handshake_bytes;
    route.handshake_us = n.handshake_us;
  }

  Status find_nics(const Graph& graph, const topo::Paths& paths,
                   const std::vector<NodeId>& members) {
    for (const NodeId nic : graph.all(NodeKind::kNic)) {
      if (graph.at(nic).usable && graph.at(nic).port_gbit_s > 0) nics_.push_back(nic);
    }
    if (nics_.empty()) {
      return invalid_argument(graph.name + " has no NIC that could join " +
                              std::to_string(options_.machines) + " such machines");
    }
    std::vector<int> users(nics_.size(), 0);
    for (const NodeId member : members) {
      int best = -1;
      topo::Path best_path;
      for (std::size_t i = 0; i < nics_.size(); ++i) {
        const topo::Path path = paths.best(member, nics_[i]);
        if (path.hops.empty()) continue;
        const auto rank = [&](const topo::Path& p, int u) {
          return std::tuple(topo::crossing_cost(p.path), -p.gb_s, u);
        };
        if (best < 0 || rank(path, users[i]) < rank(best_path, users[best])) {
          best = static_cast<int>(i);
          best_path = path;
        }
      }
      if (best < 0) {
        return invalid_argument(graph.name + ": nothing joins " + graph.at(member).name +
                                " and a NIC");
      }
      ++users[best];
      exits_.push_back({best, way(best_path), way(paths.best(nics_[best], member))});
    }
    return {};
  }

  void add_resources(const Graph& graph) {
    links_ = static_cast<int>(graph.links.size());
    per_machine_ = 2 * links_ + 2 * static_cast<int>(nics_.size());
    const Hop& n = options_.network;
    double machine_gb_s = 0;
    for (int m = 0; m < options_.machines; ++m) {
      const std::string prefix =
          options_.machines > 1 ? "machine " + std::to_string(m) + ": " : std::string();
      for (const topo::Link& link : graph.links) {
        const std::string& a = graph.at(link.a).name;
        const std::string& b = graph.at(link.b).name;
        const std::string kind = std::string(", ") + topo::link_kind_name(link.kind);
        resources_.push_back({prefix + a + " -> " + b + kind, link.a_to_b_gb_s * kBytesPerUs, 0});
        resources_.push_back({prefix + b + " -> " + a + kind, link.b_to_a_gb_s * kBytesPerUs, 0});
      }
      machine_gb_s = 0;
      for (const NodeId nic : nics_) {
        const double gb_s = n.gb_s > 0 ? n.gb_s : graph.at(nic).port_gbit_s / 8;
        machine_gb_s += gb_s;
        resources_.push_back({prefix + graph.at(nic).name + " out", gb_s * kBytesPerUs, n.gap_us});
        resources_.push_back({prefix + graph.at(nic).name + " in", gb_s * kBytesPerUs, n.gap_us});
      }
    }
    first_leaf_ = static_cast<std::int32_t>(resources_.size());
    const int leaf = options_.leaf_machines;
    if (options_.machines == 1 || leaf <= 0 || leaf >= options_.machines) {
      options_.leaf_machines = 0;
      return;
    }
    const double leaf_gb_s = machine_gb_s * leaf / options_.oversubscription;
    for (int l = 0; l * leaf < options_.machines; ++l) {
      for (const char* way_name : {" up", " down"}) {
        resources_.push_back(
            {"leaf switch " + std::to_string(l) + way_name, leaf_gb_s * kBytesPerUs, 0});
      }
    }
  }

  TopologyOptions options_;
  int each_ = 0;         // ranks of a machine
  int links_ = 0;        // of a machine
  int per_machine_ = 0;  // resources: two a link, two a NIC
  std::int32_t first_leaf_ = 0;
  std::vector<Way> ways_;  // from each member to each
  std::vector<NodeId> nics_;
  std::vector<Exit> exits_;
  std::vector<Resource> resources_;
};

}  // namespace

Result<std::unique_ptr<Fabric>> topology_fabric(const Graph& graph,
                                                const TopologyOptions& options) {
  auto fabric = std::make_unique<TopologyFabric>(options);
  TR_RETURN_IF_ERROR(fabric->build(graph));
  return std::unique_ptr<Fabric>(std::move(fabric));
}

int ranks_of(const Graph& graph) { return static_cast<int>(members_of(graph).size()); }

}  // namespace treering::sim
