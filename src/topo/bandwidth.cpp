#include "topo/bandwidth.hpp"

#include <array>

namespace treering::topo {
namespace {

// GB/s of payload of one lane: 12 GB/s for sixteen of 8 GT/s, and in proportion.
constexpr double kGbSPerGtS = 12.0 / 16 / 8;
constexpr std::array kPciSpeeds = {2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0};

double intel_socket_gb_s(int model) {
  constexpr int kSkylake = 85;
  constexpr int kIceLake = 106;
  constexpr int kSapphireRapids = 143;
  constexpr int kEmeraldRapids = 207;
  constexpr int kGraniteRapids = 173;
  switch (model) {
    case kGraniteRapids:
      return 40;
    case kSapphireRapids:
    case kEmeraldRapids:
      return 22;
    case kSkylake:
    case kIceLake:
      return 10;
    default:
      return 6;
  }
}

}  // namespace

bool is_pci_speed(double lane_gt_s) {
  for (double speed : kPciSpeeds) {
    if (lane_gt_s == speed) return true;
  }
  return false;
}

double pci_gb_s(double lane_gt_s, int width) {
  if (!is_pci_speed(lane_gt_s) || width <= 0 || width > 32) return 0;
  return kGbSPerGtS * lane_gt_s * width;
}

double nvlink_gb_s(int sm) {
  if (sm >= 100) return 40.1;
  if (sm >= 90) return 20.6;
  if (sm == 86) return 12;
  if (sm >= 70 || sm == 0) return 20;
  return 18;
}

double xgmi_gb_s(int gcn) {
  if (gcn >= 942) return 48;
  if (gcn >= 910) return 36;
  return 24;
}

double socket_gb_s(const Node& numa) {
  if (numa.cpu_arch == "ppc64") return 32;
  if (numa.cpu_arch == "arm64" || numa.cpu_arch == "aarch64") return 6;
  if (numa.cpu_vendor == "AuthenticAMD") return 16;
  if (numa.cpu_vendor == "GenuineIntel") return intel_socket_gb_s(numa.cpu_model);
  return 6;
}

double usual_pci_gt_s(int sm) {
  if (sm >= 100) return 64;
  if (sm >= 90) return 32;
  if (sm >= 80 || sm == 0) return 16;
  return 8;
}

}  // namespace treering::topo
