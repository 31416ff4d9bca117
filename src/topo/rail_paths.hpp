// Paths between machines of a cluster that are linked to several networks: rails.
#pragma once

#include <map>
#include <vector>

#include "topo/paths.hpp"

namespace treering::topo {

class RailPaths {
 public:
  explicit RailPaths(const Graph& graph);

  std::size_t rails() const { return rails_; }  // of the machine that has most
  NodeId domain_of(NodeId machine) const { return paths_.nvswitch_of(machine); }
  // NVLink where it joins the two; else over the switches of this rail, if both are linked to it;
  // else over the tree.
  Path best(NodeId a, NodeId b, std::size_t rail) const;
  // A machine's links to networks and domains.
  const std::vector<LinkId>& links_of(NodeId machine) const;

 private:
  const Graph& graph_;
  const Paths paths_;
  std::map<NodeId, std::vector<LinkId>> links_, network_links_;  // of machines
  std::size_t rails_ = 1;
};

}  // namespace treering::topo
