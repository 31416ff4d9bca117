#include "topo/graph.hpp"

#include <algorithm>

namespace treering::topo {

const char* node_kind_name(NodeKind kind) {
  switch (kind) {
    case NodeKind::kCluster:
      return "cluster";
    case NodeKind::kNetSwitch:
      return "switch";
    case NodeKind::kMachine:
      return "machine";
    case NodeKind::kPackage:
      return "package";
    case NodeKind::kNuma:
      return "NUMA node";
    case NodeKind::kCache:
      return "cache";
    case NodeKind::kCore:
      return "core";
    case NodeKind::kHostBridge:
      return "host bridge";
    case NodeKind::kPciSwitch:
      return "PCI switch";
    case NodeKind::kPciCard:
      return "card";
    case NodeKind::kPciDevice:
      return "PCI device";
    case NodeKind::kGpu:
      return "GPU";
    case NodeKind::kNic:
      return "NIC";
    case NodeKind::kNvSwitch:
      return "NVSwitch";
    case NodeKind::kGroup:
      return "group";
  }
  return "?";
}

const char* link_kind_name(LinkKind kind) {
  switch (kind) {
    case LinkKind::kPci:
      return "PCIe";
    case LinkKind::kHost:
      return "host";
    case LinkKind::kBoard:
      return "board";
    case LinkKind::kNvlink:
      return "NVLink";
    case LinkKind::kXgmi:
      return "xGMI";
    case LinkKind::kC2c:
      return "C2C";
    case LinkKind::kSocket:
      return "socket";
    case LinkKind::kNetwork:
      return "network";
  }
  return "?";
}

const char* source_name(Source source) {
  switch (source) {
    case Source::kUnknown:
      return "unknown";
    case Source::kRead:
      return "read";
    case Source::kDerived:
      return "derived";
    case Source::kAssumed:
      return "assumed";
    case Source::kMeasured:
      return "measured";
  }
  return "?";
}

const char* path_class_name(PathClass path) {
  switch (path) {
    case PathClass::kSelf:
      return "X";
    case PathClass::kNvlink:
      return "NV";
    case PathClass::kC2c:
      return "C2C";
    case PathClass::kPix:
      return "PIX";
    case PathClass::kPxb:
      return "PXB";
    case PathClass::kPhb:
      return "PHB";
    case PathClass::kNode:
      return "NODE";
    case PathClass::kSys:
      return "SYS";
    case PathClass::kNetwork:
      return "NET";
    case PathClass::kNoPath:
      return "-";
  }
  return "?";
}

NodeId Graph::add(NodeKind kind, std::string node_name, NodeId parent) {
  Node node;
  node.kind = kind;
  node.name = std::move(node_name);
  node.parent = parent;
  nodes.push_back(std::move(node));
  return static_cast<NodeId>(nodes.size()) - 1;
}

LinkId Graph::join(NodeId a, NodeId b, LinkKind kind) {
  Link link;
  link.a = a;
  link.b = b;
  link.kind = kind;
  links.push_back(link);
  return static_cast<LinkId>(links.size()) - 1;
}

LinkId Graph::join_to_parent(NodeId child, LinkKind kind) {
  const LinkId id = join(child, at(child).parent, kind);
  at(child).uplink = id;
  return id;
}

std::vector<NodeId> Graph::all(NodeKind kind) const {
  std::vector<NodeId> out;
  for (NodeId id = 0; id < static_cast<NodeId>(nodes.size()); ++id) {
    if (at(id).kind == kind) out.push_back(id);
  }
  return out;
}

std::vector<NodeId> Graph::children(NodeId id) const {
  std::vector<NodeId> out;
  for (NodeId child = 0; child < static_cast<NodeId>(nodes.size()); ++child) {
    if (at(child).parent == id) out.push_back(child);
  }
  return out;
}

NodeId Graph::ancestor(NodeId id, NodeKind kind) const {
  while (id != kNone && at(id).kind != kind) id = at(id).parent;
  return id;
}

LinkId Graph::find_link(NodeId a, NodeId b, LinkKind kind) const {
  for (LinkId id = 0; id < static_cast<LinkId>(links.size()); ++id) {
    const Link& it = link(id);
    if (it.kind == kind && ((it.a == a && it.b == b) || (it.a == b && it.b == a))) return id;
  }
  return kNone;
}

bool Graph::has(FindingKind kind) const {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& finding) { return finding.kind == kind; });
}

std::vector<NodeId> Graph::endpoints() const {
  std::vector<NodeId> out = all(NodeKind::kGpu);
  for (NodeId nic : all(NodeKind::kNic)) {
    if (at(nic).usable) out.push_back(nic);
  }
  if (!out.empty()) return out;
  if (!nodes.empty() && at(0).kind == NodeKind::kCluster) out = all(NodeKind::kMachine);
  if (!out.empty()) return out;
  // What was measured: the leaves that groups consist of.
  for (NodeId core : all(NodeKind::kCore)) {
    if (ancestor(core, NodeKind::kGroup) != kNone) out.push_back(core);
  }
  return out;
}

}  // namespace treering::topo
