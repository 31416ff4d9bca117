// What a PCI device is, by its class code: 0xBBSSPP, base class, subclass, interface.
#pragma once

#include <cstdint>

namespace treering::topo {

inline constexpr std::uint32_t kNvidia = 0x10de;
inline constexpr std::uint32_t kAmd = 0x1002;

inline bool is_bridge_class(std::uint32_t pci_class) { return pci_class >> 8 == 0x0604; }
inline bool is_nic_class(std::uint32_t pci_class) { return pci_class >> 16 == 0x02; }
inline bool is_nvswitch(std::uint32_t pci_class, std::uint32_t vendor) {
  return pci_class >> 8 == 0x0680 && (vendor == kNvidia || vendor == 0);
}
// Plain VGA is also what a server's management chip shows; those of other makers do not count.
inline bool is_gpu_class(std::uint32_t pci_class, std::uint32_t vendor) {
  if (pci_class >> 8 == 0x0300) return vendor == kNvidia || vendor == kAmd;
  return pci_class >> 16 == 0x03 || pci_class >> 16 == 0x12;
}

}  // namespace treering::topo
