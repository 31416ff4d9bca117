// TopologyFabric: machines as a topology file describes them, joined by a network.
//
// Ranks are the GPUs of a machine, in order, machine after machine; or the machines of a cluster
// whose insides are not described. Every link of the description is a resource in each direction,
// and so is each NIC's port. A GPU uses the NIC that is nearest to it; where several are as near,
// GPUs take them in turns.
#pragma once

#include <memory>
#include <string>

#include "core/status.hpp"
#include "sim/fabric.hpp"
#include "topo/graph.hpp"

namespace treering::sim {

struct TopologyOptions {
  int machines = 1;
  double nvlink_us = 1;  // latency of a message by the nearest way: NVLink, xGMI, C2C
  double pci_us = 1.5;   // PCIe and, with another half, between sockets
  Hop network;           // bandwidth: the NICs'; `gb_s` > 0 replaces it
  int leaf_machines = 0;
  double oversubscription = 1;
  double spine_us = 0;
  CoreCosts core;
};

// `graph` need not live longer. Refuses descriptions without GPUs or machines, GPUs that nothing
// joins, and several machines without NICs.
Result<std::unique_ptr<Fabric>> topology_fabric(const topo::Graph& graph,
                                                const TopologyOptions& options);
// How many ranks one machine of the description has.
int ranks_of(const topo::Graph& graph);

}  // namespace treering::sim
