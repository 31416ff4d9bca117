// hwloc's XML, versions 1 to 3. In version 1 a NUMA node contains cores and PCI devices; later it
// hangs beside them, and what is near it is told by CPU sets.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "topo/bandwidth.hpp"
#include "topo/build.hpp"
#include "topo/check.hpp"
#include "topo/gpu_links.hpp"
#include "topo/pci_class.hpp"
#include "topo/read.hpp"
#include "topo/text.hpp"
#include "topo/xml.hpp"

namespace treering::topo {
namespace {

constexpr int kMaxObjectDepth = 256;
constexpr std::size_t kMaxObjects = 100'000;

class HwlocReader {
 public:
  explicit HwlocReader(const std::string& name) {
    graph_.name = name;
    graph_.format = "hwloc XML";
  }

  Result<Graph> read(const pugi::xml_node& topology) {
    const pugi::xml_node machine = topology.child("object");
    if (!machine || std::strcmp(machine.attribute("type").value(), "Machine") != 0) {
      const std::string type = machine.attribute("type").value();
      return invalid_argument(graph_.name + " has no <object type=\"Machine\"> at its root" +
                              (type == "System" ? "; it describes several machines in hwloc 1's "
                                                  "way, which later versions gave up"
                                                : ""));
    }
    walk(machine, kNone, CpuSet(), 0);
    if (objects_ >= kMaxObjects) {
      return invalid_argument(graph_.name + " has more than " + std::to_string(kMaxObjects) +
                              " objects; no machine has");
    }
    read_infos(topology);
    const NodeId root = graph_.add(NodeKind::kMachine, "machine", kNone);
    add_cpus(graph_, root, cpus_);
    place_root_buses();
    const std::vector<NodeId> nodes = add_pci(graph_, root, functions_);
    for (std::size_t i = 0; i < functions_.size(); ++i) by_gp_[gp_index_[i]] = nodes[i];
    for (const pugi::xml_node& matrix : topology) read_distances(matrix);
    connect_gpus(graph_, gpu_links_);
    if (unknown_ > 0) {
      graph_.report(FindingKind::kUnknownPart,
                    std::to_string(unknown_) + " PCI addresses cannot be read; left out");
    }
    finish(graph_);
    return std::move(graph_);
  }

 private:
  // bridge: the PCI function that this object is below; near: CPUs of the nearest object with some.
  void walk(const pugi::xml_node& object, int bridge, CpuSet near, int depth) {
    if (++objects_ >= kMaxObjects) return;
    if (depth > kMaxObjectDepth) {
      graph_.report(FindingKind::kBadValue, "objects are nested more than " +
                                                std::to_string(kMaxObjectDepth) +
                                                " deep; what is below is left out");
      return;
    }
    const std::string type = object.attribute("type").value();
    if (const pugi::xml_attribute mask = object.attribute("cpuset")) {
      if (auto cpus = CpuSet::from_mask(mask.value())) near = std::move(*cpus);
    }
    read_infos(object);
    if (type == "Package" || type == "Socket")
      cpus_.packages.push_back({number(object), near});
    else if (type == "NUMANode" || type == "Node")
      cpus_.numa.push_back({number(object), near});
    else if (type == "Core")
      cpus_.cores.push_back({number(object), near});
    else if (type.find("Cache") != std::string::npos)
      read_cache(object, type, near);
    else if (type == "Bridge")
      bridge = read_bridge(object, bridge, near);
    else if (type == "PCIDev")
      bridge = read_function(object, bridge);
    else if (type == "OSDev" && bridge != kNone)
      read_os_device(object, bridge);
    for (const pugi::xml_node& child : object.children("object")) {
      walk(child, bridge, near, depth + 1);
    }
  }

  static int number(const pugi::xml_node& object) {
    return std::clamp(object.attribute("os_index").as_int(), 0, CpuSet::kMaxCpus);
  }

  // Caches that several cores share: level 3, and level 2 where it spans more than two CPUs.
  void read_cache(const pugi::xml_node& object, const std::string& type, const CpuSet& cpus) {
    const int level = object.attribute("depth").as_int();
    const bool instructions = type.find('i') != std::string::npos;
    if (instructions || level < 2 || level > 4 || (level == 2 && cpus.count() <= 2)) return;
    const long long bytes = object.attribute("cache_size").as_llong();
    constexpr long long kMostBytes = 1LL << 40;
    cpus_.caches.push_back({level, std::clamp(bytes, 0LL, kMostBytes), cpus});
  }

  int read_bridge(const pugi::xml_node& object, int bridge, const CpuSet& near) {
    if (starts_with(object.attribute("bridge_type").value(), "0-")) {
      const std::string_view range = object.attribute("bridge_pci").value();  // 0000:[17-3b]
      const std::size_t open = range.find('[');
      root_bus_ = std::string(range.substr(0, std::min(open, range.size())));
      if (open != std::string_view::npos) root_bus_ += std::string(range.substr(open + 1, 2));
      root_cpus_[root_bus_] = near;
      return kNone;
    }
    return read_function(object, bridge);
  }

  int read_function(const pugi::xml_node& object, int bridge) {
    PciFunction it;
    it.bus_id = canonical_bus_id(object.attribute("pci_busid").value());
    if (it.bus_id.empty()) {
      ++unknown_;
      return bridge;
    }
    // "0302 [10de:1db8] [10de:131d] a1 00"
    unsigned pci_class = 0, vendor = 0, device = 0;
    std::sscanf(object.attribute("pci_type").value(), "%x [%x:%x]", &pci_class, &vendor, &device);
    it.pci_class = pci_class << 8;
    it.vendor = vendor;
    it.device = device;
    const double raw_gb_s = object.attribute("pci_link_speed").as_double();
    constexpr double kMostGbS = 512;  // PCIe 7 x32
    if (raw_gb_s > 0 && raw_gb_s <= kMostGbS) it.raw_gb_s = raw_gb_s;
    it.bridge = bridge;
    it.root_bus = root_bus_.empty() ? it.bus_id.substr(0, it.bus_id.find(':') + 3) : root_bus_;
    functions_.push_back(std::move(it));
    gp_index_.push_back(object.attribute("gp_index").as_llong(kNone));
    return static_cast<int>(functions_.size()) - 1;
  }

  // The system's devices give GPUs and NICs their names.
  void read_os_device(const pugi::xml_node& object, int i) {
    PciFunction& it = functions_[static_cast<std::size_t>(i)];
    const std::string name = object.attribute("name").value();
    os_devices_[object.attribute("gp_index").as_llong(kNone)] = i;
    if (is_nic_class(it.pci_class) && !name.empty()) {
      const bool rdma = starts_with(name, "mlx") || starts_with(name, "bnxt_re") ||
                        starts_with(name, "hfi") || starts_with(name, "rdmap") ||
                        starts_with(name, "irdma") || starts_with(name, "efa");
      if (it.name.empty() || rdma) it.name = name;
    }
    for (const char* prefix : {"nvml", "rsmi", "cuda"}) {
      if (it.number != kNone || !starts_with(name, prefix)) continue;
      if (const auto n = parse_int(std::string_view(name).substr(std::strlen(prefix)))) {
        it.number = static_cast<int>(std::clamp<long long>(*n, 0, kMaxObjects));
      }
    }
    for (const pugi::xml_node& info : object.children("info")) {
      if (std::string_view(info.attribute("name").value()) == "GPUModel") {
        it.sm = sm_of_model(info.attribute("value").value());
      }
    }
  }

  void read_infos(const pugi::xml_node& object) {
    for (const pugi::xml_node& info : object.children("info")) {
      const std::string_view name = info.attribute("name").value();
      const pugi::xml_attribute value = info.attribute("value");
      if (name == "Architecture")
        cpus_.arch = value.value();
      else if (name == "CPUVendor")
        cpus_.vendor = value.value();
      else if (name == "CPUFamilyNumber")
        cpus_.family = std::max(parse_index(value.value()), 0);
      else if (name == "CPUModelNumber")
        cpus_.model = std::max(parse_index(value.value()), 0);
    }
  }

  // The NUMA node of each root bus: the one whose CPUs are near it.
  void place_root_buses() {
    std::map<std::string, NodeId> homes;
    for (const auto& [bus, cpus] : root_cpus_) {
      int near = 0;
      for (NodeId numa : graph_.all(NodeKind::kNuma)) {
        if (!graph_.at(numa).cpus.overlaps(cpus)) continue;
        homes[bus] = numa;
        ++near;
      }
      if (near != 1) homes[bus] = kNone;  // near several, or none: nobody says which
    }
    for (PciFunction& it : functions_) {
      const auto home = homes.find(it.root_bus);
      if (home != homes.end()) it.numa = home->second;
    }
  }

  // NVLinkBandwidth, XGMIBandwidth: a matrix over objects, in MB/s, in pieces.
  void read_distances(const pugi::xml_node& matrix) {
    const std::string_view name = matrix.attribute("name").value();
    const bool xgmi = name == "XGMIBandwidth";
    if (!starts_with(matrix.name(), "distances2") || (name != "NVLinkBandwidth" && !xgmi)) return;
    std::vector<NodeId> objects;
    for (const pugi::xml_node& part : matrix.children("indexes")) {
      for (std::string_view word : split_words(part.child_value())) {
        objects.push_back(node_of(word));
      }
    }
    std::vector<double> values;
    for (const pugi::xml_node& part : matrix.children("u64values")) {
      for (std::string_view word : split_words(part.child_value())) {
        values.push_back(parse_number(word).value_or(0));
      }
    }
    const std::size_t n = objects.size();
    if (n > kMaxObjects || values.size() != n * n) {
      graph_.report(FindingKind::kTruncated, "the matrix " + std::string(name) + " has " +
                                                 std::to_string(values.size()) + " values for " +
                                                 std::to_string(n) + " objects; left out");
      return;
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        add_gpu_link(objects[i], objects[j], i == j, values[i * n + j], xgmi);
      }
    }
  }

  // What is not a GPU in such a matrix is an NVSwitch.
  void add_gpu_link(NodeId from, NodeId to, bool diagonal, double mb_s, bool xgmi) {
    constexpr double kLinkMbS = 25e3;
    const bool gpu = from != kNone && graph_.at(from).kind == NodeKind::kGpu;
    // On the diagonal hwloc puts whatever is larger than the rest.
    if (!gpu || diagonal || !(mb_s > 0)) return;
    GpuLink link;
    link.from = from;
    link.to = to != kNone && graph_.at(to).kind == NodeKind::kGpu ? to : kNone;
    link.to_switch = link.to == kNone;
    link.kind = xgmi ? LinkKind::kXgmi : LinkKind::kNvlink;
    link.count = static_cast<int>(std::min(std::max(std::round(mb_s / kLinkMbS), 1.0), 1e3));
    link.target = to == kNone ? "an NVSwitch" : graph_.at(to).name;
    gpu_links_.push_back(link);
  }

  // "OSDev:802", "PCIDev:449", "802": by gp_index.
  NodeId node_of(std::string_view word) const {
    const std::size_t colon = word.find(':');
    if (colon != std::string_view::npos) word.remove_prefix(colon + 1);
    const auto gp = parse_int(word);
    if (!gp) return kNone;
    const auto device = os_devices_.find(*gp);
    const long long pci =
        device == os_devices_.end() ? *gp : gp_index_[static_cast<std::size_t>(device->second)];
    const auto node = by_gp_.find(pci);
    return node == by_gp_.end() ? kNone : node->second;
  }

  Graph graph_;
  CpuFacts cpus_;
  std::vector<PciFunction> functions_;
  std::vector<long long> gp_index_;  // by function
  std::map<long long, NodeId> by_gp_;
  std::map<long long, int> os_devices_;  // gp_index to function
  std::map<std::string, CpuSet> root_cpus_;
  std::string root_bus_;
  std::vector<GpuLink> gpu_links_;
  std::size_t objects_ = 0;
  int unknown_ = 0;
};

}  // namespace

Result<Graph> read_hwloc_xml(std::string_view text, const std::string& name) {
  pugi::xml_document document;
  TR_ASSIGN_OR_RETURN(pugi::xml_node topology, load_xml(document, text, name, "topology"));
  return HwlocReader(name).read(topology);
}

}  // namespace treering::topo
