// NCCL's topology XML. It knows no host bridges, packages or caches; what is assumed here is left
// out, so that NCCL makes its own assumptions.
#include <map>

#include "topo/text.hpp"
#include "topo/write.hpp"

namespace treering::topo {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

std::string hex(std::uint32_t value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "0x%0*x", digits, value);
  return text;
}

class NcclWriter {
 public:
  explicit NcclWriter(const Graph& graph) : graph_(graph) {}

  std::string write() {
    open("system", {{"version", "1"}});
    for (NodeId numa : graph_.all(NodeKind::kNuma)) write_cpu(numa);
    close("system");
    return std::move(out_);
  }

 private:
  using Attributes = std::vector<std::pair<const char*, std::string>>;

  void tag(const char* name, const Attributes& attributes, const char* end) {
    out_.append(static_cast<std::size_t>(depth_) * 2, ' ');
    out_ += std::string("<") + name;
    for (const auto& [key, value] : attributes) {
      out_ += std::string(" ") + key + "=\"" + escaped(value) + "\"";
    }
    out_ += end;
  }
  void open(const char* name, const Attributes& attributes) {
    tag(name, attributes, ">\n");
    ++depth_;
  }
  void leaf(const char* name, const Attributes& attributes) { tag(name, attributes, "/>\n"); }
  void close(const char* name) {
    --depth_;
    out_.append(static_cast<std::size_t>(depth_) * 2, ' ');
    out_ += std::string("</") + name + ">\n";
  }

  void write_cpu(NodeId numa) {
    const Node& node = graph_.at(numa);
    Attributes attributes;
    if (graph_.all(NodeKind::kMachine).size() > 1) {
      const int host = graph_.ancestor(numa, NodeKind::kMachine);
      attributes.emplace_back("host_hash", hex(static_cast<std::uint32_t>(host), 16));
    }
    attributes.emplace_back("numaid", std::to_string(node.number));
    if (!node.cpus.empty()) attributes.emplace_back("affinity", node.cpus.to_mask());
    if (!node.cpu_arch.empty()) attributes.emplace_back("arch", node.cpu_arch);
    if (!node.cpu_vendor.empty()) {
      attributes.emplace_back("vendor", node.cpu_vendor);
      attributes.emplace_back("familyid", std::to_string(node.cpu_family));
      attributes.emplace_back("modelid", std::to_string(node.cpu_model));
    }
    open("cpu", attributes);
    write_below(numa);
    close("cpu");
  }

  void write_below(NodeId parent) {
    std::vector<NodeId> nets;
    for (NodeId child : graph_.children(parent)) {
      const Node& node = graph_.at(child);
      switch (node.kind) {
        case NodeKind::kHostBridge:
          write_below(child);
          break;
        case NodeKind::kPciSwitch:
        case NodeKind::kPciCard:
        case NodeKind::kPciDevice:
          write_pci(child);
          break;
        case NodeKind::kGpu:
          if (graph_.at(parent).kind == NodeKind::kPciCard)
            write_gpu(child);
          else
            write_pci(child);
          break;
        case NodeKind::kNic:
          if (node.bus_id.empty() || graph_.at(parent).kind == NodeKind::kPciCard) {
            nets.push_back(child);
          } else {
            write_pci(child);
          }
          break;
        default:
          break;
      }
    }
    write_nic(nets);
  }

  void write_pci(NodeId id) {
    const Node& node = graph_.at(id);
    Attributes attributes = {{"busid", node.bus_id}};
    if (node.kind == NodeKind::kPciSwitch)
      attributes.emplace_back("class", "0x060400");
    else if (node.pci_class != 0)
      attributes.emplace_back("class", hex(node.pci_class, 6));
    if (node.vendor != 0) attributes.emplace_back("vendor", hex(node.vendor, 4));
    if (node.device != 0) attributes.emplace_back("device", hex(node.device, 4));
    const Link& link = graph_.link(node.uplink);
    if (link.lane_gt_s > 0) {
      char speed[40];
      std::snprintf(speed, sizeof speed, "%.1f GT/s PCIe", link.lane_gt_s);
      attributes.emplace_back("link_speed", speed);
    }
    if (link.width > 0) attributes.emplace_back("link_width", std::to_string(link.width));
    open("pci", attributes);
    if (node.kind == NodeKind::kGpu) write_gpu(id);
    if (node.kind == NodeKind::kNic) write_nic({id});
    write_below(id);
    close("pci");
  }

  void write_gpu(NodeId id) {
    const Node& gpu = graph_.at(id);
    Attributes attributes = {{"dev", std::to_string(gpu.number)}};
    if (gpu.sm != 0) attributes.emplace_back("sm", std::to_string(gpu.sm));
    if (gpu.gcn != 0) attributes.emplace_back("gcn", std::to_string(gpu.gcn));
    if (gpu.part != kNone) attributes.emplace_back("mlopart", std::to_string(gpu.part));
    attributes.emplace_back("rank", std::to_string(ranks_++));
    attributes.emplace_back("gdr", gpu.gpu_direct ? "1" : "0");
    open("gpu", attributes);
    for (const Link& link : graph_.links) {
      if (link.a == id || link.b == id) write_gpu_link(link, link.a == id ? link.b : link.a);
    }
    close("gpu");
  }

  void write_gpu_link(const Link& link, NodeId other) {
    const Node& peer = graph_.at(other);
    if (link.kind == LinkKind::kC2c) {
      leaf("c2c", {{"bw", std::to_string(static_cast<int>(link.a_to_b_gb_s * 1e3 + 0.5))},
                   {"count", "1"}});
      return;
    }
    if (link.kind != LinkKind::kNvlink && link.kind != LinkKind::kXgmi) return;
    const bool nvswitch = peer.kind == NodeKind::kNvSwitch;
    const std::string tclass = nvswitch              ? "0x068000"
                               : peer.pci_class != 0 ? hex(peer.pci_class, 6)
                                                     : "0x030200";
    leaf(link.kind == LinkKind::kXgmi ? "xgmi" : "nvlink",
         {{"target", nvswitch ? "fffffff:ff:ff.0" : peer.bus_id},
          {"count", std::to_string(link.width)},
          {"tclass", tclass}});
  }

  void write_nic(const std::vector<NodeId>& nets) {
    if (nets.empty()) return;
    open("nic", {});
    for (NodeId id : nets) {
      const Node& nic = graph_.at(id);
      leaf("net", {{"name", nic.name},
                   {"dev", std::to_string(nic.number)},
                   {"speed", std::to_string(static_cast<long>(nic.port_gbit_s * 1e3 + 0.5))},
                   {"port", "1"},
                   {"guid", hex(static_cast<std::uint32_t>(id), 1)},
                   {"maxconn", "65536"},
                   {"gdr", nic.gpu_direct ? "1" : "0"}});
    }
    close("nic");
  }

  const Graph& graph_;
  std::string out_;
  int depth_ = 0;
  int ranks_ = 0;
};

}  // namespace

Result<std::string> to_nccl_xml(const Graph& graph) {
  if (graph.all(NodeKind::kNuma).empty()) {
    return unsupported(graph.name +
                       " says nothing of the inside of machines; NCCL's format is about that only");
  }
  for (NodeId gpu : graph.all(NodeKind::kGpu)) {
    if (!graph.at(gpu).bus_id.empty()) continue;
    return unsupported(graph.at(gpu).name + " of " + graph.name +
                       " has no PCI address, by which NCCL knows it");
  }
  return NcclWriter(graph).write();
}

}  // namespace treering::topo
