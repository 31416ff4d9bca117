// From path classes to a tree. Devices that are PIX share a switch; PXB: a switch above switches;
// PHB: a host bridge; NODE: a NUMA node; SYS: a machine. Between GPUs with NVLink the matrix hides
// their PCI distance; what the NICs say of both often tells it.
#include <algorithm>
#include <map>
#include <numeric>

#include "topo/bandwidth.hpp"
#include "topo/build.hpp"
#include "topo/gpu_links.hpp"
#include "topo/smi.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

// Devices in groups: a union-find.
class Groups {
 public:
  explicit Groups(std::size_t n) : leader_(n) { std::iota(leader_.begin(), leader_.end(), 0); }
  std::size_t find(std::size_t i) {
    while (leader_[i] != i) i = leader_[i] = leader_[leader_[i]];
    return i;
  }
  // The lower number leads, so that groups come in the order of the matrix.
  void unite(std::size_t i, std::size_t j) {
    i = find(i);
    j = find(j);
    leader_[std::max(i, j)] = std::min(i, j);
  }
  // The groups of these devices.
  std::vector<std::vector<std::size_t>> of(const std::vector<std::size_t>& devices) {
    std::map<std::size_t, std::vector<std::size_t>> by_leader;
    for (std::size_t i : devices) by_leader[find(i)].push_back(i);
    std::vector<std::vector<std::size_t>> out;
    for (auto& [leader, members] : by_leader) out.push_back(std::move(members));
    return out;
  }

 private:
  std::vector<std::size_t> leader_;
};

class SmiTree {
 public:
  explicit SmiTree(SmiMatrix matrix) : matrix_(std::move(matrix)), n_(matrix_.devices.size()) {
    graph_.format = "nvidia-smi topo -m";
    graph_.findings = std::move(matrix_.findings);
    nodes_.assign(n_, kNone);
  }

  Graph build() {
    mend();
    const NodeId machine = graph_.add(NodeKind::kMachine, "machine", kNone);
    std::vector<std::size_t> all(n_);
    std::iota(all.begin(), all.end(), 0);
    Groups near = within(PathClass::kNode);
    add_affinity(near);
    add_unknown(near);
    std::vector<NodeId> numa;
    for (const auto& members : near.of(all)) numa.push_back(add_numa(machine, members));
    join_numa_nodes(graph_, numa);
    report_numa();
    state_pairs();
    add_nvlinks();
    return std::move(graph_);
  }

 private:
  // Fills in cells from the other side, and reports where the sides differ.
  void mend() {
    std::string example;
    int differ = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      const PathClass self = matrix_.at(i, i).path;
      if (self != PathClass::kSelf && self != PathClass::kNoPath) {
        graph_.report(FindingKind::kContradiction, matrix_.devices[i].label +
                                                       " is at a distance from itself (" +
                                                       path_class_name(self) + ", not X)");
      }
      for (std::size_t j = i + 1; j < n_; ++j) {
        SmiCell& a = matrix_.at(i, j);
        SmiCell& b = matrix_.at(j, i);
        if (a.path == PathClass::kSelf || b.path == PathClass::kSelf) {
          graph_.report(FindingKind::kContradiction, matrix_.devices[i].label + " and " +
                                                         matrix_.devices[j].label +
                                                         " are said to be the same device (X)");
          if (a.path == PathClass::kSelf) a = SmiCell();
          if (b.path == PathClass::kSelf) b = SmiCell();
        }
        if (a.path == PathClass::kNoPath) a = b;
        if (b.path == PathClass::kNoPath) b = a;
        if (a.path == b.path) continue;
        if (differ++ == 0) {
          example = matrix_.devices[i].label + " to " + matrix_.devices[j].label + " is " +
                    path_class_name(a.path) + ", and back " + path_class_name(b.path);
        }
        // The farther one is what can be relied on.
        (a.path < b.path ? a : b) = a.path < b.path ? b : a;
      }
    }
    if (differ > 0) {
      graph_.report(FindingKind::kContradiction,
                    "the matrix is not symmetric in " + std::to_string(differ) +
                        " places: " + example + "; the farther class is taken");
    }
  }

  Groups within(PathClass most) const {
    Groups groups(n_);
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = i + 1; j < n_; ++j) {
        const PathClass path = matrix_.at(i, j).path;
        if (path >= PathClass::kPix && path <= most) groups.unite(i, j);
      }
    }
    return groups;
  }

  // GPUs at the same NUMA node, or where that is not given at the same CPUs, are near each other,
  // unless the matrix says otherwise.
  void add_affinity(Groups& near) const {
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = i + 1; j < n_; ++j) {
        const SmiDevice& a = matrix_.devices[i];
        const SmiDevice& b = matrix_.devices[j];
        if (!a.is_gpu || !b.is_gpu || matrix_.at(i, j).path == PathClass::kSys) continue;
        const int numa_a = numa_of(a), numa_b = numa_of(b);
        if (numa_a != kNone ? numa_a == numa_b : numa_b == kNone && a.cpus == b.cpus) {
          near.unite(i, j);
        }
      }
    }
  }

  // Of devices whose rows are cut off nobody knows what they are near: they are put together.
  void add_unknown(Groups& near) const {
    std::vector<std::size_t> members(n_);
    for (std::size_t i = 0; i < n_; ++i) ++members[near.find(i)];
    std::vector<std::size_t> alone;
    for (std::size_t i = 0; i < n_; ++i) {
      const SmiDevice& device = matrix_.devices[i];
      const bool placed = !device.cpus.empty() || numa_of(device) != kNone;
      const bool gpus_without = device.is_gpu && !placed;
      if (gpus_without || (!placed && members[near.find(i)] == 1)) alone.push_back(i);
    }
    for (std::size_t i : alone) {
      for (std::size_t j : alone) {
        if (i < j && matrix_.at(i, j).path == PathClass::kNoPath) near.unite(i, j);
      }
    }
  }

  static int numa_of(const SmiDevice& device) {
    const auto list = CpuSet::from_list(device.numa_text);
    return list && !list->empty() ? list->cpus().front() : kNone;
  }

  NodeId add_numa(NodeId machine, const std::vector<std::size_t>& members) {
    const NodeId id = graph_.add(NodeKind::kNuma, "", machine);
    int number = kNone;
    for (std::size_t i : members) {
      const SmiDevice& device = matrix_.devices[i];
      graph_.at(id).cpus.add(device.cpus);
      const int said = numa_of(device);
      if (said != kNone && number != kNone && said != number) {
        graph_.report(FindingKind::kContradiction,
                      device.label + " is within a NUMA node of " +
                          matrix_.devices[members[0]].label + ", but their NUMA affinities are " +
                          std::to_string(said) + " and " + std::to_string(number));
      }
      if (number == kNone) number = said;
    }
    graph_.at(id).number = number;
    graph_.at(id).name = number == kNone ? "NUMA ?" : "NUMA " + std::to_string(number);
    if (number == kNone) unnumbered_.push_back(id);
    Groups bridges = within(PathClass::kPhb);
    for (const auto& group : bridges.of(members)) add_host_bridge(id, group);
    return id;
  }

  void add_host_bridge(NodeId numa, const std::vector<std::size_t>& members) {
    const NodeId bridge = graph_.add(NodeKind::kHostBridge, "host bridge", numa);
    graph_.join_to_parent(bridge, LinkKind::kHost);
    Groups trees = within(PathClass::kPxb);
    for (const auto& tree : trees.of(members)) add_switches(bridge, tree);
  }

  void add_switches(NodeId bridge, const std::vector<std::size_t>& members) {
    Groups leaves = within(PathClass::kPix);
    const auto groups = leaves.of(members);
    const NodeId top = groups.size() > 1 ? add_switch(bridge) : bridge;
    for (const auto& group : groups) {
      // Below a common switch each has one of its own: else two of them would be PIX.
      const bool own = group.size() > 1 || groups.size() > 1;
      const NodeId parent = own ? add_switch(top) : top;
      for (std::size_t i : group) add_device(parent, i);
    }
  }

  NodeId add_switch(NodeId parent) {
    const NodeId id =
        graph_.add(NodeKind::kPciSwitch, "PCI switch " + std::to_string(switches_++), parent);
    graph_.join_to_parent(id, LinkKind::kPci);
    return id;
  }

  void add_device(NodeId parent, std::size_t i) {
    const SmiDevice& device = matrix_.devices[i];
    const NodeId id =
        graph_.add(device.is_gpu ? NodeKind::kGpu : NodeKind::kNic, device.name, parent);
    graph_.at(id).number = device.number;
    graph_.join_to_parent(id, LinkKind::kPci);
    nodes_[i] = id;
  }

  void report_numa() {
    std::vector<NodeId> lists;
    bool given = false;
    for (std::size_t i = 0; i < n_; ++i) {
      const auto list = CpuSet::from_list(matrix_.devices[i].numa_text);
      given = given || (list && !list->empty());
      if (list && list->count() > 1) lists.push_back(nodes_[i]);
    }
    if (!lists.empty()) {
      graph_.report(FindingKind::kNumaGap,
                    "NUMA affinity of " + join_names(graph_, lists) +
                        " is a list; the first is taken, the others hold GPU memory");
    }
    if (!given) {
      int number = 0;
      for (NodeId id : unnumbered_) {
        graph_.at(id).number = number++;
        graph_.at(id).name = "NUMA " + std::to_string(graph_.at(id).number);
      }
      graph_.report(
          FindingKind::kNumaUnknown,
          std::string(matrix_.has_numa ? "NUMA affinity is N/A" : "there is no NUMA column") +
              "; NUMA nodes are made up from CPU affinity and SYS pairs, " +
              std::to_string(number) + " of them");
    } else if (!unnumbered_.empty()) {
      graph_.report(FindingKind::kNumaUnknown,
                    "some devices are not near any GPU whose NUMA node is given; assumed to be at "
                    "nodes of their own");
    }
  }

  void state_pairs() {
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = 0; j < n_; ++j) {
        const PathClass path = matrix_.at(i, j).path;
        if (i == j || path == PathClass::kNoPath) continue;
        if (i < j || matrix_.devices[i].is_gpu)
          graph_.stated.push_back({nodes_[i], nodes_[j], path});
      }
    }
  }

  // Counts that add up to more links than a GPU has go to a switch.
  void add_nvlinks() {
    constexpr int kUsualMost = 18;
    bool to_switch = false;
    int most = 0, sum_most = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      int sum = 0, widest = 0;
      for (std::size_t j = 0; j < n_; ++j) {
        sum += matrix_.at(i, j).nvlinks;
        widest = std::max(widest, matrix_.at(i, j).nvlinks);
      }
      to_switch = to_switch || sum > std::max(kUsualMost, widest);
      most = std::max(most, widest);
      sum_most = std::max(sum_most, sum);
    }
    if (most == 0) return;
    std::vector<GpuLink> lists;
    for (std::size_t i = 0; i < n_; ++i) add_list(lists, i, to_switch);
    connect_gpus(graph_, lists);
    assume_generation(to_switch ? most : sum_most);
  }

  void add_list(std::vector<GpuLink>& lists, std::size_t i, bool to_switch) {
    GpuLink widest;
    for (std::size_t j = 0; j < n_; ++j) {
      const int count = matrix_.at(i, j).nvlinks;
      if (count == 0 || !matrix_.devices[i].is_gpu || !matrix_.devices[j].is_gpu) continue;
      GpuLink link{nodes_[i], nodes_[j], false, matrix_.devices[j].label, count, LinkKind::kNvlink};
      if (!to_switch) lists.push_back(link);
      if (count > widest.count) widest = link;
    }
    if (!to_switch || widest.count == 0) return;
    widest.to_switch = true;
    lists.push_back(widest);
  }

  void assume_generation(int links) {
    const int sm = links >= 18 ? 90 : links >= 12 ? 80 : links >= 6 ? 70 : 60;
    for (NodeId gpu : graph_.all(NodeKind::kGpu)) graph_.at(gpu).sm = sm;
    for (Link& link : graph_.links) {
      if (link.kind != LinkKind::kNvlink) continue;
      link.a_to_b_gb_s = link.b_to_a_gb_s = link.width * nvlink_gb_s(sm);
      link.source = Source::kAssumed;
    }
    graph_.report(FindingKind::kNvlinkAssumed,
                  "the generation of the GPUs is not given; " + std::to_string(links) +
                      " NVLinks a GPU are those of sm_" + std::to_string(sm) + ", with " +
                      format_gb_s(nvlink_gb_s(sm)) + " GB/s each");
  }

  SmiMatrix matrix_;
  std::size_t n_;
  Graph graph_;
  std::vector<NodeId> nodes_;  // by device
  std::vector<NodeId> unnumbered_;
  int switches_ = 0;
};

}  // namespace

Graph graph_of_matrix(SmiMatrix matrix) { return SmiTree(std::move(matrix)).build(); }

}  // namespace treering::topo
