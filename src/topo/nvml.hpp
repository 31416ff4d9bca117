// What NVIDIA's driver says of the GPUs of this process, by NVML, found at run time.
#pragma once

#include <string>
#include <vector>

#include "core/status.hpp"

namespace treering::topo {

struct NvmlGpu {
  std::string bus_id;
  std::string model;
  int sm = 0;
  int pcie_generation = 0;  // that GPU and slot can do; 0: unknown
  int pcie_width = 0;
  bool mig = false;  // cut into instances
  struct Link {
    bool to_switch = false;
    std::string bus_id;  // of the other end
  };
  std::vector<Link> links;    // NVLinks that are up
  int links_down = 0;         // that the GPU has and that are not up
  double c2c_gb_s = 0;        // to the CPU
  std::vector<bool> reaches;  // by GPU: can read its memory
};

// An error says why the driver cannot be asked: no library, no driver, no permission.
Result<std::vector<NvmlGpu>> query_nvml(const std::string& library);

}  // namespace treering::topo
