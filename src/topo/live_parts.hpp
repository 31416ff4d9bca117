// The parts of read_live().
#pragma once

#include "topo/build.hpp"
#include "topo/graph.hpp"
#include "topo/sysfs.hpp"

namespace treering::topo {

CpuFacts read_cpus(const Sysfs& sysfs, Graph& graph);

// PCI functions with their links, and the names and speeds of NICs. Their numa is the number of the
// node as yet.
std::vector<PciFunction> read_pci_functions(const Sysfs& sysfs, Graph& graph);
// Interfaces that no PCI function has: software, or devices of a hypervisor.
void add_other_interfaces(const Sysfs& sysfs, Graph& graph, NodeId numa);

}  // namespace treering::topo
