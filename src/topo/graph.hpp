// The topology graph: what a machine, or a cluster of them, consists of, and the links between.
//
// Two structures over the same nodes:
//   - a tree, `parent`: which NUMA node a switch hangs at, which switch a GPU hangs at;
//   - links with a capacity in each direction. A link is one shared resource: whatever crosses it
//     in one direction shares that direction's capacity. Most links join a node to its parent
//     (`uplink`); NVLink, xGMI and the interconnect between NUMA nodes are the others.
//
// NVSwitches of a machine are one node: they are built so that only a GPU's own ports limit it.
// A card with several ports, or with several GPUs behind one PCI function, is a node (kPciCard)
// whose uplink they share. PCI switches are one node each, without their up- and downstream ports.
//
// A reader fills in what the file says and leaves unknown numbers 0; finish() (check.hpp) then
// derives or assumes the rest and reports defects. After that every link has a bandwidth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topo/cpu_set.hpp"
#include "topo/finding.hpp"

namespace treering::topo {

using NodeId = int;  // index into Graph::nodes
using LinkId = int;  // index into Graph::links
inline constexpr int kNone = -1;

enum class NodeKind : std::uint8_t {
  kCluster,    // root of several machines
  kNetSwitch,  // of the network between machines
  kMachine,
  kPackage,
  kNuma,
  kCache,
  kCore,
  kHostBridge,  // PCI root complex
  kPciSwitch,
  kPciCard,
  kPciDevice,  // of a class that is unknown or does not matter
  kGpu,
  kNic,
  kNvSwitch,  // also the NVLink domain of a rack
  kGroup,     // ranks or cores that were measured to be near each other
};
const char* node_kind_name(NodeKind kind);  // "GPU"

enum class LinkKind : std::uint8_t {
  kPci,
  kHost,     // host bridge to NUMA node: never narrower than what hangs below
  kBoard,    // inside a card
  kNvlink,   // also to an NVSwitch
  kXgmi,     // AMD's
  kC2c,      // GPU to CPU, coherent
  kSocket,   // between NUMA nodes
  kNetwork,  // between machines and switches
};
const char* link_kind_name(LinkKind kind);  // "PCIe"

// Where a number comes from.
enum class Source : std::uint8_t {
  kUnknown,   // not filled in yet
  kRead,      // the description says it
  kDerived,   // follows from what it says, by a constant (bandwidth.hpp)
  kAssumed,   // it says nothing
  kMeasured,  // here and now
};
const char* source_name(Source source);

struct Node {
  NodeKind kind = NodeKind::kMachine;
  std::string name;       // "GPU3", "mlx5_0", "NUMA 1"
  NodeId parent = kNone;  // of the tree; only the root has none
  LinkId uplink = kNone;  // to the parent, where there is one
  int number = kNone;     // GPU, NUMA node, core: as the system counts
  std::string bus_id;     // PCI devices: "0000:3b:00.0"
  std::uint32_t pci_class = 0;
  std::uint32_t vendor = 0;  // PCI vendor and device
  std::uint32_t device = 0;
  CpuSet cpus;  // NUMA nodes, packages, caches, cores

  // GPUs
  int sm = 0;               // compute capability (80), or units of an AMD GPU
  int gcn = 0;              // AMD: 906, 910, 942
  int part = kNone;         // of a GPU that is cut into instances
  bool gpu_direct = false;  // NICs, GPUs: device memory can be reached from the other

  // NICs
  double port_gbit_s = 0;  // 0: unknown
  bool usable = true;      // false: has no hardware of its own

  double distance_us = 0;  // kGroup: between members of different parts of it

  // caches, CPUs
  std::int64_t cache_bytes = 0;
  int cache_level = 0;
  std::string cpu_vendor;  // NUMA nodes and packages: "GenuineIntel"
  std::string cpu_arch;    // "x86_64"
  int cpu_family = 0;
  int cpu_model = 0;
};

struct Link {
  NodeId a = kNone;  // of an uplink: the child
  NodeId b = kNone;  // of an uplink: the parent
  LinkKind kind = LinkKind::kPci;
  int width = 0;           // lanes of PCIe; number of NVLink or xGMI links; 0: unknown
  double lane_gt_s = 0;    // PCIe: transfers a second and lane, 0: unknown
  double a_to_b_gb_s = 0;  // GB/s of payload, 0 until finish()
  double b_to_a_gb_s = 0;
  Source source = Source::kUnknown;  // of the two above
};

// How near two devices are, nearest first. Names are nvidia-smi's.
enum class PathClass : std::uint8_t {
  kSelf,     // X
  kNvlink,   // NV#: also xGMI, and over an NVSwitch
  kC2c,      // C2C
  kPix,      // one PCI switch at most
  kPxb,      // several PCI switches
  kPhb,      // a PCI host bridge
  kNode,     // several host bridges of one NUMA node
  kSys,      // several NUMA nodes
  kNetwork,  // NET
  kNoPath,   // nothing is known to join them
};
const char* path_class_name(PathClass path);  // "PIX"

// What a description says of a pair, where it gives pairs instead of a tree (nvidia-smi topo -m).
struct StatedPair {
  NodeId a = kNone;
  NodeId b = kNone;
  PathClass path = PathClass::kNoPath;
};

// The round trip of a cache line between CPUs, measured by pinned threads.
struct CoreDistances {
  std::vector<int> cpus;
  std::vector<double> ns;  // row by row, the diagonal 0; 0: not measured

  double between(std::size_t i, std::size_t j) const { return ns[i * cpus.size() + j]; }
};

struct Graph {
  std::string name;    // of the file, or "this machine"
  std::string format;  // "NCCL topology XML"
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<StatedPair> stated;
  CoreDistances distances;  // empty unless measured
  std::vector<Finding> findings;

  NodeId add(NodeKind kind, std::string node_name, NodeId parent);
  LinkId join(NodeId a, NodeId b, LinkKind kind);
  LinkId join_to_parent(NodeId child, LinkKind kind);  // and makes it the child's uplink
  void report(FindingKind kind, std::string text) { findings.push_back({kind, std::move(text)}); }

  const Node& at(NodeId id) const { return nodes[static_cast<std::size_t>(id)]; }
  Node& at(NodeId id) { return nodes[static_cast<std::size_t>(id)]; }
  const Link& link(LinkId id) const { return links[static_cast<std::size_t>(id)]; }
  Link& link(LinkId id) { return links[static_cast<std::size_t>(id)]; }

  std::vector<NodeId> all(NodeKind kind) const;
  std::vector<NodeId> children(NodeId id) const;
  // The nearest node of this kind from `id` upwards, itself included; kNone if there is none.
  NodeId ancestor(NodeId id, NodeKind kind) const;
  LinkId find_link(NodeId a, NodeId b, LinkKind kind) const;  // in either order
  bool has(FindingKind kind) const;
  // What collectives run between: the GPUs, and the NICs that can be used; of a cluster whose
  // machines are not described inside, the machines; of groups, their members.
  std::vector<NodeId> endpoints() const;
};

}  // namespace treering::topo
