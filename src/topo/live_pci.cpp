// PCI functions, their links and their network interfaces, from /sys/bus/pci and /sys/class.
#include <algorithm>
#include <map>
#include <set>

#include "topo/live_parts.hpp"
#include "topo/pci_class.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

std::vector<std::string> components_of(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (end > at) parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::uint32_t hex_of(const std::string& text) {
  const auto value = parse_int(text);
  return value && *value >= 0 && *value <= 0xffffff ? static_cast<std::uint32_t>(*value) : 0;
}

// The last PCI address in the real path of something; empty if it has none.
std::string function_of(const Sysfs& sysfs, const std::string& path) {
  std::string last;
  for (const std::string& part : components_of(sysfs.resolve(path))) {
    const std::string id = canonical_bus_id(part);
    if (!id.empty() && part.find('.') != std::string::npos && part.size() >= 12) last = id;
  }
  return last;
}

class PciReader {
 public:
  PciReader(const Sysfs& sysfs, Graph& graph) : sysfs_(sysfs), graph_(graph) {}

  std::vector<PciFunction> read() {
    for (const std::string& name : sysfs_.list("sys/bus/pci/devices")) add_chain(name);
    if (functions_.empty()) {
      graph_.report(FindingKind::kHidden, "/sys/bus/pci shows no devices: none, or hidden");
    }
    name_nics();
    report_degraded();
    return std::move(functions_);
  }

 private:
  // A function and the bridges that its real path leads through.
  void add_chain(const std::string& name) {
    const std::string path = sysfs_.resolve("sys/bus/pci/devices/" + name);
    std::string so_far, root_bus;
    int above = kNone;
    for (const std::string& part : components_of(path)) {
      so_far += (so_far.empty() ? "" : "/") + part;
      if (starts_with(part, "pci") && part.find(':') != std::string::npos) {
        root_bus = part.substr(3);
        above = kNone;
        continue;
      }
      const std::string id = canonical_bus_id(part);
      if (!id.empty()) above = add(id, so_far, root_bus, above);
    }
  }

  int add(const std::string& id, const std::string& path, const std::string& root_bus, int above) {
    const auto [it, added] = index_.try_emplace(id, static_cast<int>(functions_.size()));
    if (!added) return it->second;
    PciFunction function;
    function.bus_id = id;
    function.root_bus = root_bus;
    function.bridge = above;
    function.pci_class = hex_of(sysfs_.line(path + "/class"));
    function.vendor = hex_of(sysfs_.line(path + "/vendor"));
    function.device = hex_of(sysfs_.line(path + "/device"));
    const auto numa = parse_int(sysfs_.line(path + "/numa_node"));
    function.numa =
        numa && *numa >= 0 && *numa < CpuSet::kMaxCpus ? static_cast<int>(*numa) : kNone;
    read_link(path, function);
    functions_.push_back(std::move(function));
    return it->second;
  }

  // Speed: what the device can do, because idle devices slow their links down. Width: what it
  // runs at, because lanes that are gone do not come back.
  void read_link(const std::string& path, PciFunction& function) {
    function.lane_gt_s = parse_lane_speed(sysfs_.line(path + "/max_link_speed")).gt_s;
    if (function.lane_gt_s == 0) {
      function.lane_gt_s = parse_lane_speed(sysfs_.line(path + "/current_link_speed")).gt_s;
    }
    const auto width_of = [&](const char* file) {
      const auto width = parse_int(sysfs_.line(path + file));
      return width && *width > 0 && *width <= 32 ? static_cast<int>(*width) : 0;
    };
    const int most = width_of("/max_link_width"), now = width_of("/current_link_width");
    function.width = now > 0 ? now : most;
    const bool counts =
        is_nic_class(function.pci_class) || is_gpu_class(function.pci_class, function.vendor);
    if (counts && now > 0 && now < most) {
      degraded_.push_back(function.bus_id + " (x" + std::to_string(now) + " of x" +
                          std::to_string(most) + ")");
    }
    // The slower end decides.
    if (function.bridge == kNone || function.lane_gt_s == 0) return;
    const double above = functions_[static_cast<std::size_t>(function.bridge)].lane_gt_s;
    if (above > 0) function.lane_gt_s = std::min(function.lane_gt_s, above);
  }

  void report_degraded() {
    if (degraded_.empty()) return;
    std::string text;
    for (const std::string& it : degraded_) text += (text.empty() ? "" : ", ") + it;
    graph_.report(FindingKind::kDegradedLink,
                  "PCIe links run on fewer lanes than the device has: " + text);
  }

  PciFunction* find(const std::string& id) {
    const auto it = index_.find(id);
    return it == index_.end() ? nullptr : &functions_[static_cast<std::size_t>(it->second)];
  }

  // RDMA devices give the name, for that is what libraries ask for; else the interface does.
  void name_nics() {
    for (const std::string& name : sysfs_.list("sys/class/infiniband")) {
      PciFunction* nic = find(function_of(sysfs_, "sys/class/infiniband/" + name));
      if (nic == nullptr) continue;
      name_port(*nic, name);
      // "200 Gb/sec (4X HDR)"
      const auto words = sysfs_.line("sys/class/infiniband/" + name + "/ports/1/rate");
      const auto rate = parse_number(std::string_view(words).substr(0, words.find(' ')));
      if (rate && *rate > 0) nic->port_gbit_s = *rate;
      named_.insert(nic->bus_id);
    }
    for (const std::string& name : sysfs_.list("sys/class/net")) {
      PciFunction* nic = find(function_of(sysfs_, "sys/class/net/" + name));
      if (nic == nullptr) continue;
      const auto speed = parse_number(sysfs_.line("sys/class/net/" + name + "/speed"));
      if (speed && *speed > 0 && nic->port_gbit_s == 0) nic->port_gbit_s = *speed / 1e3;
      if (!named_.count(nic->bus_id)) name_port(*nic, name);
    }
  }

  static void name_port(PciFunction& nic, const std::string& name) {
    // A virtual machine's NIC is a PCI function whose interface belongs to a driver below it.
    if (nic.name.empty())
      nic.name = name;
    else
      nic.more_ports.push_back(name);
  }

  const Sysfs& sysfs_;
  Graph& graph_;
  std::vector<PciFunction> functions_;
  std::map<std::string, int> index_;  // by address
  std::set<std::string> named_;       // that RDMA devices gave their names
  std::vector<std::string> degraded_;
};

}  // namespace

std::vector<PciFunction> read_pci_functions(const Sysfs& sysfs, Graph& graph) {
  return PciReader(sysfs, graph).read();
}

void add_other_interfaces(const Sysfs& sysfs, Graph& graph, NodeId numa) {
  for (const std::string& name : sysfs.list("sys/class/net")) {
    const std::string path = sysfs.resolve("sys/class/net/" + name);
    if (name == "lo" || path.empty() || !function_of(sysfs, "sys/class/net/" + name).empty()) {
      continue;
    }
    const NodeId id = graph.add(NodeKind::kNic, name, numa);
    graph.join_to_parent(id, LinkKind::kHost);
    // Software interfaces are below devices/virtual; a hypervisor's are not, and can be used.
    graph.at(id).usable = path.find("/virtual/") == std::string::npos;
    const auto speed = parse_number(sysfs.line("sys/class/net/" + name + "/speed"));
    if (speed && *speed > 0) graph.at(id).port_gbit_s = *speed / 1e3;
  }
}

}  // namespace treering::topo
