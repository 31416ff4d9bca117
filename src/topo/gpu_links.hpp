// NVLink and xGMI as descriptions have them: each GPU lists where its links go. Here both lists of
// a pair become one link, and what does not fit together is reported.
#pragma once

#include <string>
#include <vector>

#include "topo/graph.hpp"

namespace treering::topo {

struct GpuLink {
  NodeId from = kNone;
  NodeId to = kNone;  // kNone: the machine's NVSwitch, if to_switch, or nobody
  bool to_switch = false;
  std::string target;  // as written, for messages
  int count = 0;       // links
  LinkKind kind = LinkKind::kNvlink;
};

// Adds the links, and an NVSwitch node to each machine that needs one.
void connect_gpus(Graph& graph, const std::vector<GpuLink>& lists);

}  // namespace treering::topo
