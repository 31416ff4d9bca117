// NCCL's and RCCL's topology XML: system > cpu > pci > ... > gpu, or nic > net. All attributes may
// be missing; what is not an element of that grammar is reported and left out.
#include <map>
#include <set>

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

constexpr int kMaxPciDepth = 64;  // of nested <pci>; real machines have 5
constexpr std::size_t kMaxNodes = 100'000;

class NcclReader {
 public:
  explicit NcclReader(const std::string& name) {
    graph_.name = name;
    graph_.format = "NCCL topology XML";
  }

  Result<Graph> read(const pugi::xml_node& system) {
    add_machines(system);
    for (const pugi::xml_node& cpu : system) {
      if (std::string_view(cpu.name()) == "cpu")
        read_cpu(cpu);
      else
        unknown(cpu, "system");
    }
    if (graph_.nodes.size() >= kMaxNodes) {
      return invalid_argument(graph_.name + " has more than " + std::to_string(kMaxNodes) +
                              " parts; no machine has");
    }
    if (graph_.all(NodeKind::kNuma).empty()) {
      return invalid_argument(graph_.name + " has no <cpu> in its <system>: nothing to read");
    }
    number_undescribed_gpus();
    resolve_targets();
    connect_gpus(graph_, gpu_links_);
    join_sockets();
    report_parts();
    finish(graph_);
    return std::move(graph_);
  }

 private:
  // One machine, or one for each host_hash under a cluster.
  void add_machines(const pugi::xml_node& system) {
    std::set<std::string> hashes;
    for (const pugi::xml_node& cpu : system.children("cpu")) {
      hashes.insert(cpu.attribute("host_hash").value());
    }
    if (hashes.size() <= 1) {
      machines_[hashes.empty() ? "" : *hashes.begin()] =
          graph_.add(NodeKind::kMachine, "machine", kNone);
      return;
    }
    const NodeId cluster = graph_.add(NodeKind::kCluster, "cluster", kNone);
    for (const std::string& hash : hashes) {
      machines_[hash] =
          graph_.add(NodeKind::kMachine, "machine " + std::to_string(machines_.size()), cluster);
    }
  }

  void read_cpu(const pugi::xml_node& cpu) {
    const NodeId numa =
        graph_.add(NodeKind::kNuma, "", machines_[cpu.attribute("host_hash").value()]);
    Node& node = graph_.at(numa);
    const auto number = parse_int(cpu.attribute("numaid").value());
    if (number && *number >= 0 && *number < CpuSet::kMaxCpus) {
      node.number = static_cast<int>(*number);
      node.name = "NUMA " + std::to_string(*number);
    } else {
      node.name = "NUMA ?";
      graph_.report(FindingKind::kNumaUnknown, "a <cpu> has numaid '" +
                                                   std::string(cpu.attribute("numaid").value()) +
                                                   "'; taken as a NUMA node of its own");
    }
    node.cpu_arch = cpu.attribute("arch").value();
    node.cpu_vendor = cpu.attribute("vendor").value();
    node.cpu_family = whole(cpu, "familyid");
    node.cpu_model = whole(cpu, "modelid");
    if (const auto cpus = CpuSet::from_mask(cpu.attribute("affinity").value())) {
      node.cpus = *cpus;
    } else {
      graph_.report(FindingKind::kBadValue, "the CPU mask of " + node.name + ", '" +
                                                cpu.attribute("affinity").value() +
                                                "', cannot be read; left out");
    }
    for (const pugi::xml_node& child : cpu) {
      const std::string_view name = child.name();
      if (name == "pci")
        read_pci(child, numa, 0);
      else if (name == "nic")
        read_nic(child, numa, nullptr);
      else
        unknown(child, "cpu");
    }
  }

  void read_pci(const pugi::xml_node& pci, NodeId parent, int depth) {
    if (graph_.nodes.size() >= kMaxNodes) return;
    if (depth > kMaxPciDepth) {
      graph_.report(FindingKind::kBadValue, "<pci> is nested more than " +
                                                std::to_string(kMaxPciDepth) +
                                                " deep; what is below is left out");
      return;
    }
    Node device;
    const std::string written = pci.attribute("busid").value();
    device.bus_id = canonical_bus_id(written);
    if (device.bus_id.empty()) {
      graph_.report(FindingKind::kBadValue,
                    "'" + written + "' is no PCI address; the device is kept without one");
    }
    device.pci_class = hex(pci, "class");
    device.vendor = hex(pci, "vendor");
    device.device = hex(pci, "device");

    int gpus = 0, nets = 0, ports = 0;
    for (const pugi::xml_node& child : pci) {
      const std::string_view name = child.name();
      gpus += name == "gpu";
      ports += name == "pci";
      if (name != "nic") continue;
      for ([[maybe_unused]] const pugi::xml_node& net : child.children("net")) ++nets;
    }
    device.kind = kind_of(device, gpus, nets, ports);
    device.parent = parent;
    const NodeId id = add_device(std::move(device), pci);
    for (const pugi::xml_node& child : pci) {
      const std::string_view name = child.name();
      if (name == "pci")
        read_pci(child, id, depth + 1);
      else if (name == "gpu")
        read_gpu(child, id, gpus);
      else if (name == "nic")
        read_nic(child, id, &pci);
      else
        unknown(child, "pci");
    }
  }

  static NodeKind kind_of(const Node& device, int gpus, int nets, int ports) {
    if (ports > 0) return NodeKind::kPciSwitch;
    if (gpus + nets > 1) return NodeKind::kPciCard;
    if (gpus == 1) return NodeKind::kGpu;
    if (nets == 1) return NodeKind::kNic;
    if (is_bridge_class(device.pci_class)) return NodeKind::kPciSwitch;
    if (is_nic_class(device.pci_class)) return NodeKind::kNic;
    if (is_gpu_class(device.pci_class, device.vendor)) return NodeKind::kGpu;
    return NodeKind::kPciDevice;
  }

  NodeId add_device(Node device, const pugi::xml_node& pci) {
    const bool bridge = device.kind == NodeKind::kPciSwitch || device.kind == NodeKind::kPciCard;
    device.name = std::string(node_kind_name(device.kind)) + " " +
                  (device.bus_id.empty() ? "?" : device.bus_id);
    if (!bridge && device.kind != NodeKind::kPciDevice) device.name = device.bus_id;
    const NodeId id = static_cast<NodeId>(graph_.nodes.size());
    graph_.nodes.push_back(std::move(device));
    if (graph_.at(id).kind == NodeKind::kGpu && !pci.child("gpu")) undescribed_.push_back(id);
    Link& link = graph_.link(graph_.join_to_parent(id, LinkKind::kPci));
    const std::string speed = pci.attribute("link_speed").value();
    const LaneSpeed parsed = parse_lane_speed(speed);
    link.lane_gt_s = parsed.gt_s;
    link.width = whole(pci, "link_width");
    if (link.width > 32) link.width = 0;
    if (parsed.wrong_unit) wrong_unit(id, "PCIe speed", speed, format_gb_s(parsed.gt_s) + " GT/s");
    return id;
  }

  void read_gpu(const pugi::xml_node& element, NodeId pci, int gpus_there) {
    NodeId id = pci;
    if (graph_.at(pci).kind != NodeKind::kGpu) {
      id = graph_.add(NodeKind::kGpu, "", pci);
      graph_.at(id).bus_id = graph_.at(pci).bus_id;
      graph_.join_to_parent(id, LinkKind::kBoard);
    }
    Node& gpu = graph_.at(id);
    gpu.number = parse_index(element.attribute("dev").value());
    gpu.name = gpu.number < 0 ? "GPU?" : "GPU" + std::to_string(gpu.number);
    gpu.part = parse_index(element.attribute("mlopart").value());
    if (gpu.part != kNone && gpus_there > 1) gpu.name += "." + std::to_string(gpu.part);
    gpu.sm = whole(element, "sm");
    gpu.gpu_direct = element.attribute("gdr").as_int() != 0;
    std::string_view gcn = element.attribute("gcn").value();
    if (starts_with(gcn, "gfx")) gcn.remove_prefix(3);
    gpu.gcn = std::max(parse_index(gcn.substr(0, gcn.find(':'))), 0);
    for (const pugi::xml_node& child : element) {
      const std::string_view name = child.name();
      if (name == "nvlink" || name == "xgmi")
        read_gpu_link(child, id, name == "xgmi");
      else if (name == "c2c")
        read_c2c(child, id);
      else
        unknown(child, "gpu");
    }
  }

  void read_gpu_link(const pugi::xml_node& element, NodeId gpu, bool xgmi) {
    GpuLink link;
    link.from = gpu;
    link.kind = xgmi ? LinkKind::kXgmi : LinkKind::kNvlink;
    link.target = canonical_bus_id(element.attribute("target").value());
    if (link.target.empty()) link.target = element.attribute("target").value();
    link.count = element.attribute("count").as_int();
    const std::uint32_t tclass = hex(element, "tclass");
    link.to_switch = tclass == 0x068000 || (tclass == 0 && is_invented_bus_id(link.target));
    constexpr std::uint32_t kPowerBridge = 0x068001;
    if (tclass == kPowerBridge) {
      const double gb_s = link.count * nvlink_gb_s(graph_.at(gpu).sm);
      if (link.count > 0 && link.count <= kMaxNvlinks) join_c2c(gpu, gb_s, Source::kDerived);
      return;
    }
    gpu_links_.push_back(link);
  }

  void read_c2c(const pugi::xml_node& element, NodeId gpu) {
    const double gb_s = element.attribute("bw").as_double() *
                        std::max(element.attribute("count").as_int(1), 1) / 1e3;
    if (gb_s > 0 && gb_s <= kHostGbS)
      join_c2c(gpu, gb_s, Source::kRead);
    else
      graph_.report(FindingKind::kBadValue, "the C2C link of " + graph_.at(gpu).name +
                                                " has a bandwidth of " + format_gb_s(gb_s) +
                                                " GB/s; left out");
  }

  void join_c2c(NodeId gpu, double gb_s, Source source) {
    Link& link =
        graph_.link(graph_.join(gpu, graph_.ancestor(gpu, NodeKind::kNuma), LinkKind::kC2c));
    link.a_to_b_gb_s = link.b_to_a_gb_s = gb_s;
    link.source = source;
  }

  // pci: the function that the ports belong to; nullptr below a <cpu>.
  void read_nic(const pugi::xml_node& nic, NodeId parent, const pugi::xml_node* pci) {
    for (const pugi::xml_node& net : nic) {
      if (std::string_view(net.name()) != "net") {
        unknown(net, "nic");
        continue;
      }
      if (graph_.nodes.size() >= kMaxNodes) return;
      NodeId id = parent;
      if (pci == nullptr || graph_.at(parent).kind != NodeKind::kNic) {
        id = graph_.add(NodeKind::kNic, "", parent);
        graph_.at(id).bus_id = graph_.at(parent).bus_id;
        graph_.join_to_parent(id, pci == nullptr ? LinkKind::kHost : LinkKind::kBoard);
      }
      read_net(net, id);
    }
  }

  void read_net(const pugi::xml_node& net, NodeId id) {
    Node& node = graph_.at(id);
    node.name = net.attribute("name").value();
    if (node.name.empty()) node.name = "NIC " + node.bus_id;
    node.number = whole(net, "dev");
    node.gpu_direct = net.attribute("gdr").as_int() != 0;
    const std::string written = net.attribute("speed").value();
    const PortSpeed speed = parse_port_speed(parse_number(written).value_or(0));
    node.port_gbit_s = speed.gbit_s;
    if (speed.wrong_unit) {
      wrong_unit(id, "speed", written + " Mbit/s", format_gb_s(speed.gbit_s) + " Gbit/s");
    }
  }

  void number_undescribed_gpus() {
    int next = 0;
    for (NodeId id : graph_.all(NodeKind::kGpu)) next = std::max(next, graph_.at(id).number + 1);
    for (NodeId id : undescribed_) {
      graph_.at(id).number = next++;
      graph_.at(id).name = "GPU" + std::to_string(graph_.at(id).number);
    }
    if (!undescribed_.empty()) {
      graph_.report(FindingKind::kGpusUndescribed,
                    join_names(graph_, undescribed_) +
                        " are only PCI devices here, numbered in the order of the file; no links "
                        "between them are assumed beyond PCIe");
    }
    if (graph_.all(NodeKind::kGpu).empty()) {
      graph_.report(FindingKind::kGpusUndescribed, "no GPU is described");
    }
  }

  void resolve_targets() {
    std::map<std::pair<NodeId, std::string>, NodeId> by_address;
    for (NodeId id : graph_.all(NodeKind::kGpu)) {
      by_address.try_emplace({graph_.ancestor(id, NodeKind::kMachine), graph_.at(id).bus_id}, id);
    }
    for (GpuLink& link : gpu_links_) {
      if (link.to_switch) continue;
      const auto it =
          by_address.find({graph_.ancestor(link.from, NodeKind::kMachine), link.target});
      if (it != by_address.end()) link.to = it->second;
    }
  }

  void join_sockets() {
    for (const auto& [hash, machine] : machines_) {
      std::vector<NodeId> numa = graph_.children(machine);
      std::erase_if(numa, [&](NodeId id) { return graph_.at(id).kind != NodeKind::kNuma; });
      join_numa_nodes(graph_, numa);
    }
  }

  // Not negative, and 0 for what is no number.
  static int whole(const pugi::xml_node& element, const char* attribute) {
    return std::max(parse_index(element.attribute(attribute).value()), 0);
  }

  std::uint32_t hex(const pugi::xml_node& element, const char* attribute) const {
    const std::string_view text = element.attribute(attribute).value();
    if (!starts_with(text, "0x")) return 0;
    const auto value = parse_int(text);
    return value && *value >= 0 && *value <= 0xffffffff ? static_cast<std::uint32_t>(*value) : 0;
  }

  void wrong_unit(NodeId id, const std::string& what, const std::string& written,
                  const std::string& taken) {
    wrong_units_[{what + " '" + written + "'", taken}].push_back(id);
  }

  void unknown(const pugi::xml_node& element, const std::string& where) {
    if (element.type() != pugi::node_element) return;
    ++unknown_["<" + std::string(element.name()).substr(0, 40) + "> in <" + where + ">"];
  }

  void report_parts() {
    for (const auto& [what, count] : unknown_) {
      graph_.report(FindingKind::kUnknownPart,
                    what + " is not known here and left out (" + std::to_string(count) + " times)");
    }
    for (const auto& [written, devices] : wrong_units_) {
      graph_.report(FindingKind::kUnitError, written.first + " of " + join_names(graph_, devices) +
                                                 " makes no sense; taken as " + written.second);
    }
  }

  Graph graph_;
  std::map<std::string, NodeId> machines_;  // by host_hash
  std::vector<GpuLink> gpu_links_;
  std::vector<NodeId> undescribed_;  // GPUs by their class alone
  std::map<std::string, int> unknown_;
  // What is written, and what it is taken for.
  std::map<std::pair<std::string, std::string>, std::vector<NodeId>> wrong_units_;
};

}  // namespace

Result<Graph> read_nccl_xml(std::string_view text, const std::string& name) {
  pugi::xml_document document;
  TR_ASSIGN_OR_RETURN(pugi::xml_node system, load_xml(document, text, name, "system"));
  return NcclReader(name).read(system);
}

}  // namespace treering::topo
