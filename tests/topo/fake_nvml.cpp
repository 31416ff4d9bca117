// Plays NVML: GPU 0 to 2 are those of a p4d, the last is nowhere in sysfs. 12 links each to an
// NVSwitch; GPU 1 is cut into instances; a link of GPU 2 is down; 0 and 1 do not reach each other.
#include <cstdio>
#include <cstring>

namespace {

struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  int type, result;
  union {
    double d;
    unsigned u;
  } value;
};
const char* const kAddress[] = {"00000000:10:1C.0", "00000000:10:1D.0", "00000000:20:1C.0",
                                "00000009:01:00.0"};
constexpr int kNotSupported = 3;

long index_of(void* device) { return reinterpret_cast<long>(device) - 1; }

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int nvmlInit_v2() { return 0; }
__attribute__((visibility("default"))) int nvmlShutdown() { return 0; }
__attribute__((visibility("default"))) int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 4;
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetHandleByIndex_v2(unsigned i,
                                                                         void** device) {
  *device = reinterpret_cast<void*>(static_cast<long>(i) + 1);
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* pci) {
  std::snprintf(pci->bus_id, sizeof pci->bus_id, "%s", kAddress[index_of(device)]);
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetCudaComputeCapability(void*, int* major,
                                                                              int* minor) {
  *major = 8;
  *minor = 0;
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetMigMode(void* device, unsigned* now,
                                                                unsigned* pending) {
  *now = *pending = index_of(device) == 1;
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetNvLinkState(void* device, unsigned link,
                                                                    unsigned* up) {
  if (link >= 12) return kNotSupported;
  *up = !(index_of(device) == 2 && link == 7);
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned link,
                                                                               PciInfo* pci) {
  std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:C%u:00.0", link / 2);
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned,
                                                                               int* type) {
  *type = 2;
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetFieldValues(void* device, int count,
                                                                    FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    values[i].result = index_of(device) == 0 ? 0 : kNotSupported;
    values[i].value.u = values[i].field == 170 ? 10 : values[i].field == 171 ? 1 : 45000;
  }
  return 0;
}
__attribute__((visibility("default"))) int nvmlDeviceGetP2PStatus(void* a, void* b, int,
                                                                  int* status) {
  *status = index_of(a) + index_of(b) == 1 ? 4 : 0;
  return 0;
}
}
