#include "cli/explain/report.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "algos/registry.hpp"
#include "cli/sim/request.hpp"
#include "core/config.hpp"
#include "sim/topology_fabric.hpp"
#include "topo/read.hpp"

namespace treering::sim_view {
namespace {

using sim::kBytesPerUs;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 44;

double bus_factor(Collective c, int n) {
  const double part = (n - 1.0) / n;
  switch (c) {
    case Collective::kAllReduce:
      return 2 * part;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return part;
    default:
      return 1;
  }
}

bool is_machine_algorithm(const std::string& name) {
  return std::any_of(std::begin(sim::kMachineAlgorithms), std::end(sim::kMachineAlgorithms),
                     [&](const char* a) { return name == a; });
}

std::string names_of(Collective c, int ranks, const HostMap& hosts) {
  std::string names = algos::algorithm_names(c, ranks, nullptr, &hosts);
  if (c != Collective::kAllReduce) return names;
  for (const char* name : sim::kMachineAlgorithms) names += std::string(", ") + name;
  return names;
}

Result<sim::Workload> workload(const Request& q, Collective c, const std::string& name,
                               const std::shared_ptr<const HostMap>& hosts, std::uint64_t bytes) {
  const int n = hosts->ranks();
  sim::Workload w;
  if (c == Collective::kAllReduce && is_machine_algorithm(name)) {
    TR_ASSIGN_OR_RETURN(w, sim::machine_workload(name, *hosts, q.channels, bytes));
  } else {
    const algos::Algorithm* a = algos::find_algorithm(c, name);
    if (a == nullptr || !algos::supports(*a, n, hosts.get())) {
      return invalid_argument(std::string(collective_name(c)) +
                              (a == nullptr ? " has no algorithm '" : " cannot use '") + name +
                              "' over " + std::to_string(hosts->hosts()) + " machines of " +
                              std::to_string(hosts->most_members()) +
                              "; choose among: " + names_of(c, n, *hosts));
    }
    w = sim::workload_of(*a, n, bytes, q.root, hosts);
    if (a->windows) {
      w.slice_bytes = 0;
      return w;
    }
  }
  w.slice_bytes = q.slice_bytes;
  w.slices_per_round = q.slices_per_round;
  w.slots = q.slots;
  w.merge = q.merge;
  return w;
}

struct Cluster {
  std::unique_ptr<sim::Fabric> fabric;
  int machines = 1, each = 1;
  std::string words;
};

Status check_numbers(const Request& q) {
  const sim::MachinesOptions& m = q.machines;
  for (const double x : {m.local.latency_us, m.local.overhead_us, m.local.gap_us, m.local.gb_s,
                         m.network.latency_us, m.network.overhead_us, m.network.gap_us,
                         m.network.gb_s, m.memory_gb_s, m.spine_us, q.nvlink_us, q.pci_us,
                         q.reduce_gb_s, q.copy_gb_s, m.core.step_us, m.network.handshake_us}) {
    if (!(x >= 0 && x < 1e9)) return invalid_argument("times and bandwidths are 0 to 10^9");
  }
  if (!(m.oversubscription >= 1 && m.oversubscription <= 1000)) {
    return invalid_argument("--oversubscription: choose 1 to 1000");
  }
  return {};
}

// All sizes, one by one, in q.sizes.
Status list_sizes(Request& q) {
  if (q.end_bytes != 0 && (q.end_bytes < q.begin_bytes || !(q.factor >= 1.01))) {
    return invalid_argument("--end must not be less than --bytes, nor --factor than 1.01");
  }
  if (q.sizes.empty()) {
    const auto end = static_cast<double>(std::max(q.begin_bytes, q.end_bytes));
    for (double size = static_cast<double>(q.begin_bytes); size <= end; size *= q.factor) {
      q.sizes.push_back(static_cast<std::uint64_t>(size));
      if (size == 0) break;
    }
  }
  if (*std::max_element(q.sizes.begin(), q.sizes.end()) <= kMostBytes) return {};
  return invalid_argument("--bytes, --end, --sizes: choose at most 2^44");
}

Result<Cluster> make_cluster(Request& q) {
  sim::MachinesOptions& m = q.machines;
  m.core.reduce_us_per_byte = q.reduce_gb_s > 0 ? 1 / (q.reduce_gb_s * kBytesPerUs) : 0;
  m.core.copy_us_per_byte = q.copy_gb_s > 0 ? 1 / (q.copy_gb_s * kBytesPerUs) : 0;
  m.core.one_core = !q.lanes_apart;
  Cluster c;
  topo::Graph graph;
  c.each = m.per_machine;
  if (!q.topology.empty()) {
    TR_ASSIGN_OR_RETURN(graph, topo::read_file(q.topology));
    c.each = std::max(1, sim::ranks_of(graph));
  }
  if (c.each < 1 || m.nics < 1) return invalid_argument("--per-machine, --nics: choose 1 or more");
  if (q.ranks > 0) {
    if (q.machines_given) {
      return invalid_argument("give -n or --machines, not both: one follows from the other");
    }
    if (q.ranks % c.each != 0) {
      return invalid_argument("-n " + std::to_string(q.ranks) + ": a machine has " +
                              std::to_string(c.each) + " ranks; choose a multiple");
    }
    m.machines = q.ranks / c.each;
  }
  c.machines = m.machines;
  const std::int64_t ranks = std::int64_t{m.machines} * c.each;
  if (m.machines < 1 || ranks < 2 || ranks > kMaxRanks) {
    return invalid_argument(std::to_string(ranks) + " ranks: choose 2 to " +
                            std::to_string(kMaxRanks));
  }
  q.ranks = static_cast<int>(ranks);
  c.words = std::to_string(ranks) + " ranks: " + std::to_string(m.machines) +
            (m.machines == 1 ? " machine of " : " machines of ") + std::to_string(c.each);
  if (q.topology.empty()) {
    c.fabric = std::make_unique<sim::Machines>(m);
    return c;
  }
  sim::TopologyOptions t;
  t.machines = m.machines;
  t.nvlink_us = q.nvlink_us;
  t.pci_us = q.pci_us;
  t.network = m.network;
  t.leaf_machines = m.leaf_machines;
  t.oversubscription = m.oversubscription;
  t.spine_us = m.spine_us;
  t.core = m.core;
  TR_ASSIGN_OR_RETURN(c.fabric, sim::topology_fabric(graph, t));
  c.words += ", " + q.topology;
  return c;
}

std::string percent(double part) {
  char text[16];
  std::snprintf(text, sizeof text, "%.0f%%", 100 * part);
  return text;
}

std::vector<std::size_t> busiest(const Row& row, int count) {
  std::vector<std::size_t> order(row.result.loads.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return row.result.loads[a].busy_us > row.result.loads[b].busy_us;
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(std::max(count, 0))));
  while (!order.empty() && row.result.loads[order.back()].messages == 0) order.pop_back();
  return order;
}

}  // namespace

Result<Report> make_report(Request q) {
  TR_ASSIGN_OR_RETURN(const Collective collective, explain::parse_collective(q.op));
  TR_RETURN_IF_ERROR(check_numbers(q));
  TR_RETURN_IF_ERROR(list_sizes(q));
  TR_ASSIGN_OR_RETURN(const Cluster cluster, make_cluster(q));
  std::vector<int> host_of_rank;
  for (int r = 0; r < q.ranks; ++r) host_of_rank.push_back(r / cluster.each);
  const auto hosts = std::make_shared<const HostMap>(host_of_rank);
  if (q.root < 0 || q.root >= q.ranks) {
    return invalid_argument("--root: choose 0 to " + std::to_string(q.ranks - 1));
  }
  if (q.algorithms.empty()) {
    return invalid_argument("--algo is missing; choose among: " +
                            names_of(collective, q.ranks, *hosts));
  }
  Report report;
  report.collective = collective;
  report.ranks = q.ranks;
  report.cluster = cluster.words;
  report.resources = cluster.fabric->resources();
  for (const std::string& name : q.algorithms) {
    for (const std::uint64_t bytes : q.sizes) {
      TR_ASSIGN_OR_RETURN(const sim::Workload w, workload(q, collective, name, hosts, bytes));
      sim::SimOptions options;
      const bool traced = !q.trace.empty() && report.trace.empty();
      if (traced) options.max_spans = q.trace_steps;
      TR_ASSIGN_OR_RETURN(sim::SimResult result, sim::simulate(w, *cluster.fabric, options));
      if (traced) report.trace = sim::to_perfetto(result, *cluster.fabric);
      Row row{name, bytes, std::move(result), 0, 0};
      if (row.result.time_us > 0) {
        row.algbw_gb_s = static_cast<double>(bytes) / row.result.time_us / kBytesPerUs;
        row.busbw_gb_s = row.algbw_gb_s * bus_factor(collective, q.ranks);
      }
      report.rows.push_back(std::move(row));
    }
  }
  return report;
}

std::string to_text(const Report& report, int loads) {
  std::string text = std::string(collective_name(report.collective)) + ", " + report.cluster +
                     "; simulated, nothing was run\n";
  char line[400];
  std::snprintf(line, sizeof line, "%-20s %14s %14s %10s %10s %12s\n", "algorithm", "bytes",
                "time (us)", "algbw", "busbw", "messages");
  text += line;
  bool partly = false;
  for (const Row& row : report.rows) {
    const bool part = row.result.simulated_rounds < row.result.rounds;
    partly = partly || part;
    std::snprintf(line, sizeof line, "%-20s %14llu %13.2f%s %10.2f %10.2f %12llu\n",
                  row.algorithm.c_str(), static_cast<unsigned long long>(row.bytes),
                  row.result.time_us, part ? "*" : " ", row.algbw_gb_s, row.busbw_gb_s,
                  static_cast<unsigned long long>(row.result.messages));
    text += line;
  }
  if (partly) text += "*: the first rounds were simulated, the others follow at their pace\n";
  if (report.rows.empty() || loads <= 0) return text;
  const Row& last = report.rows.back();
  std::snprintf(line, sizeof line, "busiest of %s, %llu bytes\n", last.algorithm.c_str(),
                static_cast<unsigned long long>(last.bytes));
  text += line;
  for (const std::size_t i : busiest(last, loads)) {
    const sim::Load& load = last.result.loads[i];
    std::snprintf(line, sizeof line, "  %5s busy  %14.0f bytes  %10llu messages  %s\n",
                  percent(load.busy_us / last.result.time_us).c_str(), load.bytes,
                  static_cast<unsigned long long>(load.messages), report.resources[i].name.c_str());
    text += line;
  }
  return text;
}

std::string to_json(const Report& report, int loads) {
  nlohmann::ordered_json out;
  out["op"] = collective_name(report.collective);
  out["ranks"] = report.ranks;
  out["cluster"] = report.cluster;
  out["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : report.rows) {
    nlohmann::ordered_json r;
    r["algorithm"] = row.algorithm;
    r["bytes"] = row.bytes;
    r["time_us"] = row.result.time_us;
    r["algbw_gb_s"] = row.algbw_gb_s;
    r["busbw_gb_s"] = row.busbw_gb_s;
    r["messages"] = row.result.messages;
    r["rounds"] = row.result.rounds;
    r["simulated_rounds"] = row.result.simulated_rounds;
    for (const std::size_t i : busiest(row, loads)) {
      const sim::Load& load = row.result.loads[i];
      r["links"].push_back({{"name", report.resources[i].name},
                            {"busy_us", load.busy_us},
                            {"bytes", load.bytes},
                            {"messages", load.messages}});
    }
    out["rows"].push_back(r);
  }
  return out.dump(2) + "\n";
}

}  // namespace treering::sim_view
