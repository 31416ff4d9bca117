#include "tests/topo/fake_root.hpp"

#include <fstream>
#include <stdlib.h>

namespace treering::topo {

namespace fs = std::filesystem;

FakeRoot::FakeRoot() {
  std::string name = (fs::temp_directory_path() / "treering-topo-XXXXXX").string();
  root_ = ::mkdtemp(name.data());
}

FakeRoot::~FakeRoot() {
  std::error_code error;
  fs::remove_all(root_, error);
}

void FakeRoot::write(const std::string& file, const std::string& text) const {
  fs::create_directories((root_ / file).parent_path());
  std::ofstream(root_ / file) << text << "\n";
}

void FakeRoot::link(const std::string& name, const std::string& target) const {
  fs::create_directories((root_ / name).parent_path());
  fs::create_symlink(root_ / target, root_ / name);
}

void FakeRoot::remove(const std::string& name) const { fs::remove_all(root_ / name); }

std::string FakeRoot::port_id() {
  char id[32];
  std::snprintf(id, sizeof id, "00fe:%02x:%02x.%d", ports_ / 256, ports_ / 8 % 32, ports_ % 8);
  ++ports_;
  return id;
}

void FakeRoot::write_function(const std::string& directory, const std::string& id,
                              const char* pci_class, const char* vendor, const Link* link,
                              int numa) const {
  write(directory + "/class", pci_class);
  write(directory + "/vendor", vendor);
  write(directory + "/numa_node", std::to_string(numa));
  if (link != nullptr && link->lane_gt_s > 0) {
    char speed[40];
    std::snprintf(speed, sizeof speed, "%.1f GT/s PCIe", link->lane_gt_s);
    write(directory + "/max_link_speed", speed);
    write(directory + "/max_link_width", std::to_string(link->width));
  }
  this->link("sys/bus/pci/devices/" + id, directory);
}

void FakeRoot::write_below(const Graph& graph, NodeId parent, const std::string& directory,
                           NodeId numa) {
  const int number = graph.at(numa).number;
  for (NodeId child : graph.children(parent)) {
    const Node& node = graph.at(child);
    if (node.bus_id.empty()) continue;
    const Link* link = node.uplink == kNone ? nullptr : &graph.link(node.uplink);
    // Below a switch its downstream port, else a root port.
    const std::string port = directory + "/" + port_id();
    write_function(port, port.substr(port.rfind('/') + 1), "0x060400", "0x10b5", link, number);
    const std::string own = port + "/" + node.bus_id;
    switch (node.kind) {
      case NodeKind::kPciSwitch:
        write_function(own, node.bus_id, "0x060400", "0x10b5", link, number);
        write_below(graph, child, own, numa);
        break;
      case NodeKind::kGpu:
        write_function(own, node.bus_id, "0x030200", "0x10de", link, number);
        break;
      case NodeKind::kNic:
        write_function(own, node.bus_id, "0x020700", "0x15b3", link, number);
        this->link("sys/class/infiniband/" + node.name, own + "/infiniband/" + node.name);
        write(own + "/infiniband/" + node.name + "/ports/1/rate",
              std::to_string(static_cast<int>(node.port_gbit_s)) + " Gb/sec (4X EDR)");
        break;
      default:
        break;
    }
  }
}

void FakeRoot::write_machine(const Graph& graph) {
  std::string nodes, cpus;
  for (NodeId numa : graph.all(NodeKind::kNuma)) {
    const Node& node = graph.at(numa);
    const std::string number = std::to_string(node.number);
    nodes += (nodes.empty() ? "" : ",") + number;
    // A few of its CPUs: files are slow to make.
    const int first = node.cpus.cpus().front();
    const std::string list = std::to_string(first) + "-" + std::to_string(first + 3);
    cpus += (cpus.empty() ? "" : ",") + list;
    write("sys/devices/system/node/node" + number + "/cpulist", list);
    for (int cpu = first; cpu < first + 4; ++cpu) {
      const std::string path = "sys/devices/system/cpu/cpu" + std::to_string(cpu);
      write(path + "/topology/physical_package_id", number);
      write(path + "/topology/core_id", std::to_string(cpu));
      if (cpu > first) continue;  // the others' caches are the same
      write(path + "/cache/index3/level", "3");
      write(path + "/cache/index3/type", "Unified");
      write(path + "/cache/index3/size", "32768K");
      write(path + "/cache/index3/shared_cpu_list", list);
    }
    char bus[32];
    std::snprintf(bus, sizeof bus, "sys/devices/pci00%02x:00", node.number);
    write_below(graph, numa, bus, numa);
  }
  write("sys/devices/system/node/online", nodes);
  write("sys/devices/system/cpu/online", cpus);
  write("proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 49\n"
        "flags\t\t: fpu sse2\n");
}

}  // namespace treering::topo
