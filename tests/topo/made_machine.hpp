// Machines that the tests of the search make up.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "topo/graph.hpp"

namespace treering::topo {

struct GpuPair {
  int a, b, links;
};

// GPUs of this compute capability on one NUMA node, PCIe 8 GT/s x16, and NVLinks between them.
Graph mesh(int gpus, int sm, const std::vector<GpuPair>& pairs);
// All NVLinks to one switch, PCIe 16 GT/s x16, and a NIC of 100 Gbit/s beside each of the first
// GPUs.
Graph switched(int gpus, int sm, int links, int nics);
// The mesh of the first 8-GPU servers: two squares with diagonals, joined corner by corner.
std::vector<GpuPair> cube_mesh(bool volta);

// Anything: 1 to 4 NUMA nodes, switches in two levels, islands of NVLinks of uneven width, NICs.
Graph random_machine(std::mt19937_64& random, int most_gpus);

// topograph's YAML: spines over leaves over machines; domain: machines in each NVLink domain, 0:
// none; rails: how many leaves each machine is below.
std::string cluster_yaml(int leaves, int machines_a_leaf, int domain, int rails);

}  // namespace treering::topo
