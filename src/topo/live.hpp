// The machine that this runs on: CPUs, NUMA nodes, PCI and network from sysfs, GPUs and NVLink from
// NVML. Containers and virtual machines hide parts; what is missing is assumed, and that is said.
#pragma once

#include <string>

#include "topo/graph.hpp"

namespace treering::topo {

struct LiveOptions {
  std::string root = "/";                  // where sys and proc are; tests build their own
  std::string nvml = "libnvidia-ml.so.1";  // empty: not asked
  int measure_ms = 250;  // time for distances between cores; 0: not measured; only with root "/"
};

// Never fails: what cannot be read is a finding.
Graph read_live(const LiveOptions& options);

}  // namespace treering::topo
