// The prototypes are ours: NVML's header is not needed, and functions that a driver lacks are
// missing facts, not errors.
#include "topo/nvml.hpp"

#include <cstring>
#include <dlfcn.h>

#include "topo/text.hpp"

namespace treering::topo {
namespace {

using Device = void*;
struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency_us;
  int value_type;
  int result;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_unsigned_long;
  } value;
};
constexpr int kSuccess = 0;
constexpr int kMaxLinks = 36;
constexpr unsigned kC2cCount = 170, kC2cStatus = 171, kC2cMbS = 172;
constexpr int kRemoteGpu = 0, kRemoteSwitch = 2;  // 1: a POWER CPU
constexpr int kReadAccess = 0;

class Nvml {
 public:
  Nvml() = default;
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (running_) (void)shutdown_();
    if (library_ != nullptr) ::dlclose(library_);
  }

  Status open(const std::string& name) {
    library_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return unsupported(name + " is not there: no NVIDIA driver");
    find(init_, "nvmlInit_v2");
    find(shutdown_, "nvmlShutdown");
    find(error_text_, "nvmlErrorString");
    find(count_, "nvmlDeviceGetCount_v2");
    find(by_index_, "nvmlDeviceGetHandleByIndex_v2");
    find(pci_info_, "nvmlDeviceGetPciInfo_v3");
    find(name_, "nvmlDeviceGetName");
    find(capability_, "nvmlDeviceGetCudaComputeCapability");
    find(generation_, "nvmlDeviceGetMaxPcieLinkGeneration");
    find(width_, "nvmlDeviceGetMaxPcieLinkWidth");
    find(mig_mode_, "nvmlDeviceGetMigMode");
    find(link_state_, "nvmlDeviceGetNvLinkState");
    find(link_pci_, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    find(link_type_, "nvmlDeviceGetNvLinkRemoteDeviceType");
    find(fields_, "nvmlDeviceGetFieldValues");
    find(p2p_, "nvmlDeviceGetP2PStatus");
    if (init_ == nullptr || shutdown_ == nullptr || count_ == nullptr || by_index_ == nullptr ||
        pci_info_ == nullptr) {
      return unsupported(name + " lacks functions that every NVML has");
    }
    const int result = init_();
    if (result != kSuccess) {
      return unsupported(name + " does not start: " +
                         (error_text_ != nullptr ? error_text_(result) : "no reason given"));
    }
    running_ = true;
    return Status();
  }

  std::vector<NvmlGpu> gpus() const {
    std::vector<NvmlGpu> out;
    std::vector<Device> devices;
    unsigned count = 0;
    if (count_(&count) != kSuccess) return out;
    for (unsigned i = 0; i < count && i < 1024; ++i) {
      Device device = nullptr;
      PciInfo pci{};
      if (by_index_(i, &device) != kSuccess || pci_info_(device, &pci) != kSuccess) continue;
      NvmlGpu gpu;
      gpu.bus_id = address(pci);
      fill(device, gpu);
      devices.push_back(device);
      out.push_back(std::move(gpu));
    }
    for (std::size_t i = 0; i < devices.size(); ++i) {
      for (Device other : devices) out[i].reaches.push_back(reaches(devices[i], other));
    }
    return out;
  }

 private:
  template <class Function>
  void find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library_, symbol));
  }

  static std::string address(const PciInfo& pci) {
    const std::string text(pci.bus_id, ::strnlen(pci.bus_id, sizeof pci.bus_id));
    return canonical_bus_id(text);
  }

  void fill(Device device, NvmlGpu& gpu) const {
    char model[96] = {};
    if (name_ != nullptr && name_(device, model, sizeof model - 1) == kSuccess) gpu.model = model;
    int major = 0, minor = 0;
    if (capability_ != nullptr && capability_(device, &major, &minor) == kSuccess) {
      gpu.sm = major * 10 + minor;
    }
    unsigned value = 0;
    if (generation_ != nullptr && generation_(device, &value) == kSuccess && value < 16) {
      gpu.pcie_generation = static_cast<int>(value);
    }
    if (width_ != nullptr && width_(device, &value) == kSuccess && value <= 32) {
      gpu.pcie_width = static_cast<int>(value);
    }
    unsigned now = 0, pending = 0;
    gpu.mig = mig_mode_ != nullptr && mig_mode_(device, &now, &pending) == kSuccess && now == 1;
    for (unsigned link = 0; link < kMaxLinks; ++link) add_link(device, link, gpu);
    gpu.c2c_gb_s = c2c_gb_s(device);
  }

  void add_link(Device device, unsigned link, NvmlGpu& gpu) const {
    unsigned up = 0;
    if (link_state_ == nullptr || link_state_(device, link, &up) != kSuccess) return;
    if (up == 0) {
      ++gpu.links_down;
      return;
    }
    PciInfo remote{};
    if (link_pci_ == nullptr || link_pci_(device, link, &remote) != kSuccess) return;
    int type = kRemoteGpu;
    if (link_type_ != nullptr) (void)link_type_(device, link, &type);
    gpu.links.push_back({type == kRemoteSwitch, address(remote)});
  }

  double c2c_gb_s(Device device) const {
    unsigned links = 0;
    if (!field(device, kC2cCount, 0, links) || links > kMaxLinks) return 0;
    double sum_mb_s = 0;
    for (unsigned link = 0; link < links; ++link) {
      unsigned up = 0, mb_s = 0;
      if (!field(device, kC2cStatus, link, up) || up == 0) continue;
      if (field(device, kC2cMbS, link, mb_s)) sum_mb_s += mb_s;
    }
    return sum_mb_s / 1e3;
  }

  bool field(Device device, unsigned id, unsigned scope, unsigned& out) const {
    if (fields_ == nullptr) return false;
    FieldValue value{};
    value.field = id;
    value.scope = scope;
    if (fields_(device, 1, &value) != kSuccess || value.result != kSuccess) return false;
    out = value.value.as_unsigned;
    return true;
  }

  // Unknown counts as yes: CUDA says so later, and with a reason.
  bool reaches(Device from, Device to) const {
    if (from == to || p2p_ == nullptr) return true;
    int status = 0;
    return p2p_(from, to, kReadAccess, &status) != kSuccess || status == 0;
  }

  void* library_ = nullptr;
  bool running_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  const char* (*error_text_)(int) = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*by_index_)(unsigned, Device*) = nullptr;
  int (*pci_info_)(Device, PciInfo*) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*capability_)(Device, int*, int*) = nullptr;
  int (*generation_)(Device, unsigned*) = nullptr;
  int (*width_)(Device, unsigned*) = nullptr;
  int (*mig_mode_)(Device, unsigned*, unsigned*) = nullptr;
  int (*link_state_)(Device, unsigned, unsigned*) = nullptr;
  int (*link_pci_)(Device, unsigned, PciInfo*) = nullptr;
  int (*link_type_)(Device, unsigned, int*) = nullptr;
  int (*fields_)(Device, int, FieldValue*) = nullptr;
  int (*p2p_)(Device, Device, int, int*) = nullptr;
};

}  // namespace

Result<std::vector<NvmlGpu>> query_nvml(const std::string& library) {
  Nvml nvml;
  TR_RETURN_IF_ERROR(nvml.open(library));
  return nvml.gpus();
}

}  // namespace treering::topo
