// Constants: payload bandwidth in GB/s and one direction of the links of known generations. From
// what NCCL's and RCCL's models use, which is what copies reach, not what a data sheet says.
#pragma once

#include <string_view>

#include "topo/graph.hpp"

namespace treering::topo {

// PCIe of so many GT/s and lanes: 12 GB/s for 8 GT/s x16. 0 if it is no PCIe speed.
double pci_gb_s(double lane_gt_s, int width);
bool is_pci_speed(double lane_gt_s);

double nvlink_gb_s(int sm);  // of one link; sm 0: unknown, as of sm_80
double xgmi_gb_s(int gcn);   // of one link; gcn 0: unknown, as of 906
// Between two NUMA nodes, by the CPU they belong to.
double socket_gb_s(const Node& numa);

// What a GPU of this generation has as its PCIe slot, for when nobody says.
double usual_pci_gt_s(int sm);

inline constexpr int kUsualPciWidth = 16;
inline constexpr double kUsualPortGbitS = 100;
inline constexpr double kHostGbS = 5000;  // never the limit
inline constexpr int kMaxNvlinks = 36;    // that any GPU has

}  // namespace treering::topo
