// A matrix of path classes as nvidia-smi prints it, and the tree that it implies.
#pragma once

#include <string>
#include <vector>

#include "topo/graph.hpp"

namespace treering::topo {

struct SmiCell {
  PathClass path = PathClass::kNoPath;  // not given
  int nvlinks = 0;
};

struct SmiDevice {
  std::string label;  // of the column: "NIC0"
  std::string name;   // by the legend: "mlx5_0"
  bool is_gpu = false;
  int number = kNone;
  CpuSet cpus;
  std::string numa_text;  // "0", "N/A", "0,5-11"; empty: not given
};

struct SmiMatrix {
  std::vector<SmiDevice> devices;
  std::vector<SmiCell> cells;  // row by row
  bool has_numa = false;       // a column for it
  std::vector<Finding> findings;

  SmiCell& at(std::size_t row, std::size_t column) { return cells[row * devices.size() + column]; }
  const SmiCell& at(std::size_t row, std::size_t column) const {
    return cells[row * devices.size() + column];
  }
};

// Without finish().
Graph graph_of_matrix(SmiMatrix matrix);

}  // namespace treering::topo
