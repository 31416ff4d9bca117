#include "topo/live.hpp"

#include <algorithm>
#include <map>
#include <sched.h>

#include "core/deadline.hpp"
#include "topo/bandwidth.hpp"
#include "topo/check.hpp"
#include "topo/core_distance.hpp"
#include "topo/gpu_links.hpp"
#include "topo/live_parts.hpp"
#include "topo/nvml.hpp"
#include "topo/text.hpp"

namespace treering::topo {
namespace {

class Live {
 public:
  explicit Live(const LiveOptions& options) : options_(options), sysfs_(options.root) {
    graph_.name = "this machine";
    graph_.format = "sysfs";
  }

  Graph read() {
    machine_ = graph_.add(NodeKind::kMachine, "machine", kNone);
    add_cpus(graph_, machine_, read_cpus(sysfs_, graph_));
    for (NodeId id : graph_.all(NodeKind::kNuma)) numa_.emplace(graph_.at(id).number, id);
    std::vector<PciFunction> functions = read_pci_functions(sysfs_, graph_);
    for (PciFunction& it : functions) {
      const auto home = numa_.find(it.numa);
      it.numa = home == numa_.end() ? kNone : home->second;
    }
    ask_driver(functions);
    add_pci(graph_, machine_, functions);
    add_other_interfaces(sysfs_, graph_, numa_.begin()->second);
    add_driver_facts();
    if (options_.root == "/") look_at_this_process();
    finish(graph_);
    return std::move(graph_);
  }

 private:
  // GPUs that the driver does not give to this process are no GPUs here.
  void ask_driver(std::vector<PciFunction>& functions) {
    if (options_.nvml.empty()) return;
    Result<std::vector<NvmlGpu>> asked = query_nvml(options_.nvml);
    const bool any = std::any_of(functions.begin(), functions.end(), is_nvidia_gpu);
    if (!asked.ok()) {
      if (any) {
        graph_.report(FindingKind::kGpusUndescribed,
                      "there are NVIDIA GPUs, but the driver cannot be asked (" +
                          asked.status().message() + "); links between them are unknown");
      }
      return;
    }
    gpus_ = std::move(asked).value();
    graph_.format = "sysfs and NVML";
    std::string hidden;
    for (PciFunction& it : functions) {
      if (!is_nvidia_gpu(it)) continue;
      const auto known = std::find_if(gpus_.begin(), gpus_.end(),
                                      [&](const NvmlGpu& gpu) { return gpu.bus_id == it.bus_id; });
      if (known != gpus_.end()) {
        it.number = static_cast<int>(known - gpus_.begin());
        it.sm = known->sm;
        continue;
      }
      it.pci_class = 0;
      hidden += (hidden.empty() ? "" : ", ") + it.bus_id;
    }
    if (!hidden.empty()) {
      graph_.report(FindingKind::kHidden,
                    "the driver does not show " + hidden +
                        " to this process (a container, or a mask); not used");
    }
  }

  static bool is_nvidia_gpu(const PciFunction& it) {
    return it.vendor == 0x10de && it.pci_class >> 16 == 0x03;
  }

  void add_driver_facts() {
    std::map<std::string, NodeId> by_address;
    for (NodeId id : graph_.all(NodeKind::kGpu)) by_address[graph_.at(id).bus_id] = id;
    std::vector<NodeId> nodes;
    std::vector<NodeId> homeless;
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      const auto it = by_address.find(gpus_[i].bus_id);
      if (it != by_address.end()) {
        nodes.push_back(it->second);
      } else {
        nodes.push_back(add_homeless(i));
        homeless.push_back(nodes.back());
        by_address[gpus_[i].bus_id] = nodes.back();
      }
    }
    if (!homeless.empty()) {
      graph_.report(FindingKind::kHidden, "sysfs does not show " + join_names(graph_, homeless) +
                                              ", which the driver has; assumed to be at " +
                                              graph_.at(numa_.begin()->second).name);
    }
    std::vector<GpuLink> links;
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      add_link_counts(gpus_[i], nodes[i], by_address, links);
      add_c2c(gpus_[i], nodes[i]);
    }
    connect_gpus(graph_, links);
    report_driver_facts(nodes);
  }

  NodeId add_homeless(std::size_t i) {
    const NvmlGpu& gpu = gpus_[i];
    const NodeId id = graph_.add(NodeKind::kGpu, "GPU" + std::to_string(i), numa_.begin()->second);
    Node& node = graph_.at(id);
    node.number = static_cast<int>(i);
    node.bus_id = gpu.bus_id;
    node.sm = gpu.sm;
    Link& link = graph_.link(graph_.join_to_parent(id, LinkKind::kPci));
    static constexpr double kGtS[] = {0, 2.5, 5, 8, 16, 32, 64};
    if (gpu.pcie_generation <= 6) link.lane_gt_s = kGtS[gpu.pcie_generation];
    link.width = gpu.pcie_width;
    return id;
  }

  static void add_link_counts(const NvmlGpu& gpu, NodeId node,
                              const std::map<std::string, NodeId>& by_address,
                              std::vector<GpuLink>& links) {
    std::map<std::pair<bool, std::string>, int> counts;
    for (const NvmlGpu::Link& link : gpu.links) {
      ++counts[{link.to_switch, link.to_switch ? "" : link.bus_id}];
    }
    for (const auto& [target, count] : counts) {
      GpuLink link;
      link.from = node;
      link.to_switch = target.first;
      link.target = target.second;
      link.count = count;
      const auto it = by_address.find(target.second);
      if (it != by_address.end()) link.to = it->second;
      links.push_back(link);
    }
  }

  void add_c2c(const NvmlGpu& gpu, NodeId node) {
    if (gpu.c2c_gb_s <= 0) return;
    Link& link =
        graph_.link(graph_.join(node, graph_.ancestor(node, NodeKind::kNuma), LinkKind::kC2c));
    link.a_to_b_gb_s = link.b_to_a_gb_s = gpu.c2c_gb_s;
    link.source = Source::kRead;
  }

  void report_driver_facts(const std::vector<NodeId>& nodes) {
    std::vector<NodeId> mig, down;
    std::string apart;
    int pairs = 0;
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      if (gpus_[i].mig) mig.push_back(nodes[i]);
      if (gpus_[i].links_down > 0 && !gpus_[i].links.empty()) down.push_back(nodes[i]);
      for (std::size_t j = i + 1; j < gpus_.size(); ++j) {
        if (gpus_[i].reaches[j] && gpus_[j].reaches[i]) continue;
        if (pairs++ == 0) apart = graph_.at(nodes[i]).name + " and " + graph_.at(nodes[j]).name;
      }
    }
    if (!mig.empty()) {
      graph_.report(FindingKind::kPartitioned, join_names(graph_, mig) +
                                                   " are cut into instances (MIG), which have "
                                                   "neither NVLink nor each other's memory");
    }
    if (!down.empty()) {
      graph_.report(FindingKind::kMissingLink,
                    join_names(graph_, down) + " have NVLinks that are not up; left out");
    }
    if (pairs > 0) {
      graph_.report(FindingKind::kNoPeerAccess,
                    std::to_string(pairs) + " pairs of GPUs cannot reach each other's memory (" +
                        apart + "); data goes over host memory");
    }
  }

  // Which CPUs this process may use, and how far they are from each other.
  void look_at_this_process() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return;
    std::vector<int> cores;  // one CPU of each
    CpuSet allowed;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) allowed.add(cpu);
    }
    int online = 0;
    for (NodeId id : graph_.all(NodeKind::kCore)) {
      online += graph_.at(id).cpus.count();
      for (int cpu : graph_.at(id).cpus.cpus()) {
        if (!allowed.has(cpu)) continue;
        cores.push_back(cpu);
        break;
      }
    }
    if (online > allowed.count()) {
      graph_.report(FindingKind::kHidden, "this process may use CPUs " + allowed.to_list() +
                                              " only, " + std::to_string(allowed.count()) + " of " +
                                              std::to_string(online));
    }
    if (options_.measure_ms <= 0 || cores.size() < 2) return;
    constexpr std::size_t kMostCores = 16;
    graph_.distances = measure_core_distances(sample_cores(cores, kMostCores),
                                              Deadline::after_ms(options_.measure_ms));
  }

  const LiveOptions& options_;
  Sysfs sysfs_;
  Graph graph_;
  NodeId machine_ = kNone;
  std::map<int, NodeId> numa_;  // by number
  std::vector<NvmlGpu> gpus_;
};

}  // namespace

Graph read_live(const LiveOptions& options) { return Live(options).read(); }

}  // namespace treering::topo
