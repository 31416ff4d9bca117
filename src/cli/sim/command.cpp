// `treering sim`: the command line.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/commands.hpp"
#include "cli/sim/request.hpp"

namespace treering {
namespace {

using sim_view::Request;

Status write_trace(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!file) return system_error("cannot open '" + path + "' for writing", errno);
  file << text;
  file.close();
  if (!file) return system_error("cannot write '" + path + "'", errno);
  std::fprintf(stderr, "wrote %s (%zu KiB): open it at ui.perfetto.dev\n", path.c_str(),
               text.size() / 1024);
  return {};
}

Status run(const Request& request) {
  TR_ASSIGN_OR_RETURN(const sim_view::Report report, sim_view::make_report(request));
  const std::string text = request.json ? sim_view::to_json(report, request.loads)
                                        : sim_view::to_text(report, request.loads);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (request.trace.empty()) return {};
  return write_trace(request.trace, report.trace);
}

void add_hop(CLI::App& app, const std::string& prefix, const std::string& what, sim::Hop& hop) {
  app.add_option("--" + prefix + "latency-us", hop.latency_us, "latency of a message " + what)
      ->capture_default_str();
  app.add_option("--" + prefix + "overhead-us", hop.overhead_us,
                 "of a core at either end of a message " + what)
      ->capture_default_str();
  app.add_option("--" + prefix + "gap-us", hop.gap_us, "a message's least time at a port")
      ->capture_default_str();
  app.add_option("--" + prefix + "gb-s", hop.gb_s, "of a port in one direction; 0: no limit")
      ->capture_default_str();
  app.add_option("--" + prefix + "stream-gb-s", hop.stream_gb_s,
                 "the most that one message reaches; 0: what the port has")
      ->capture_default_str();
  app.add_option("--" + prefix + "handshake-us", hop.handshake_us,
                 "more latency of a message of --" + prefix + "handshake-bytes or more")
      ->capture_default_str();
  app.add_option("--" + prefix + "handshake-bytes", hop.handshake_bytes)
      ->transform(CLI::AsSizeValue(false))
      ->default_str("none");
}

}  // namespace

void add_sim_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "sim", "Predict how long a collective takes on machines that are described, not there");
  auto request = std::make_shared<Request>();
  Request& q = *request;
  q.machines.machines = 1;
  q.machines.local = {.latency_us = 1, .gb_s = 100};
  q.machines.network = {.latency_us = 5, .overhead_us = 0.5, .gb_s = 25};
  command->add_option("op", q.op, "all_reduce, broadcast, ...");
  command
      ->add_option("--algo", q.algorithms,
                   "one or more: ring,tree,two_level; all_reduce also "
                   "rail_ring and chain_tree, in NCCL's shape")
      ->delimiter(',');
  command->add_option("-n,--ranks", q.ranks, "number of ranks; or give --machines");
  command->add_option("--bytes", q.begin_bytes, "size of the vector, such as 64M")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("1M");
  command->add_option("--end", q.end_bytes, "also larger ones, up to this size")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--factor", q.factor, "from one size to the next")->capture_default_str();
  command->add_option("--sizes", q.sizes, "instead of these: a list of sizes, in bytes")
      ->delimiter(',');
  command->add_option("--root", q.root, "root of broadcast, reduce, gather, scatter")
      ->capture_default_str();
  command->add_option("--slice", q.slice_bytes, "most bytes that one message carries; 0: a chunk")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("64K");
  command
      ->add_option("--per-round", q.slices_per_round,
                   "slices of a chunk in one round; 0: all of them")
      ->capture_default_str();
  command
      ->add_option("--slots", q.slots,
                   "messages that a link holds before its writer waits; 0: any number")
      ->capture_default_str();
  command->add_flag("--merge", q.merge,
                    "chunks in a row to one peer are one message, as MPI libraries send them");
  command->add_option("--channels", q.channels, "copies of rail_ring and chain_tree")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--topo", q.topology,
                      "what a machine consists of: a file that treering topo reads");
  CLI::Option* machines =
      command->add_option("--machines", q.machines.machines, "number of machines")
          ->capture_default_str();
  command->add_option("--per-machine", q.machines.per_machine, "ranks of each, without --topo")
      ->capture_default_str();
  command->add_option("--nics", q.machines.nics, "of each machine, without --topo")
      ->capture_default_str();
  add_hop(*command, "local-", "inside of a machine, without --topo", q.machines.local);
  add_hop(*command, "", "between machines", q.machines.network);
  command
      ->add_option("--memory-gb-s", q.machines.memory_gb_s,
                   "shared by all messages inside of a machine; 0: no limit")
      ->capture_default_str();
  command->add_option("--nvlink-us", q.nvlink_us, "--topo: latency over NVLink, xGMI, C2C")
      ->capture_default_str();
  command->add_option("--pci-us", q.pci_us, "--topo: latency over PCIe; between sockets x1.5")
      ->capture_default_str();
  command
      ->add_option("--leaf", q.machines.leaf_machines,
                   "machines at a leaf switch; 0: one switch for all")
      ->capture_default_str();
  command
      ->add_option("--oversubscription", q.machines.oversubscription, "of a leaf switch's uplinks")
      ->capture_default_str();
  command->add_option("--spine-us", q.machines.spine_us, "more latency between leaf switches")
      ->capture_default_str();
  command->add_option("--step-us", q.machines.core.step_us, "fixed cost of a step")
      ->capture_default_str();
  command->add_option("--reduce-gb-s", q.reduce_gb_s, "folding, per input; 0: no cost")
      ->capture_default_str();
  command->add_option("--copy-gb-s", q.copy_gb_s, "storing into own buffers; 0: no cost")
      ->capture_default_str();
  command->add_flag("--lanes-apart", q.lanes_apart,
                    "each lane has a core of its own, as a kernel's blocks have");
  command->add_option("--links", q.loads, "show so many of the busiest links")
      ->capture_default_str();
  command->add_option("--trace", q.trace, "write a timeline of the first run for Perfetto");
  command->add_option("--trace-steps", q.trace_steps, "that the timeline holds at most")
      ->capture_default_str();
  command->add_flag("--json", q.json, "print everything as JSON");
  command->callback([request, machines] {
    request->machines_given = machines->count() > 0;
    const Status status = run(*request);
    if (status.ok()) return;
    std::fprintf(stderr, "treering sim: %s\n", status.message().c_str());
    throw CLI::RuntimeError(2);
  });
}

}  // namespace treering
