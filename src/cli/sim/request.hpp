// What `treering sim` is asked, and its answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "core/types.hpp"
#include "sim/fabric.hpp"
#include "sim/simulator.hpp"

namespace treering::sim_view {

// The command line, as given. Times in us, bandwidths in GB/s, compute in GB/s, too.
struct Request {
  std::string op;
  std::vector<std::string> algorithms;
  int ranks = 0;                                       // 0: machines * per_machine
  std::uint64_t begin_bytes = 1 << 20, end_bytes = 0;  // 0: only begin_bytes
  double factor = 4;
  std::vector<std::uint64_t> sizes;  // instead of the three above
  int root = 0;
  std::uint64_t slice_bytes = 64 << 10;
  std::uint32_t slices_per_round = 1, slots = 0;
  bool merge = false;
  int channels = 1;
  // The cluster.
  std::string topology;
  sim::MachinesOptions machines;
  bool machines_given = false;
  double nvlink_us = 1, pci_us = 1.5;
  double reduce_gb_s = 0, copy_gb_s = 0;
  bool lanes_apart = false;
  // What is shown.
  int loads = 5;
  std::string trace;
  std::size_t trace_steps = 200'000;
  bool json = false;
};

// One line of the table.
struct Row {
  std::string algorithm;
  std::uint64_t bytes = 0;
  sim::SimResult result;
  double algbw_gb_s = 0, busbw_gb_s = 0;
};

struct Report {
  Collective collective = Collective::kAllReduce;
  int ranks = 0;
  std::string cluster;  // in words
  std::vector<Row> rows;
  std::vector<sim::Resource> resources;
  std::string trace;  // Perfetto's JSON, where it was asked for
};

Result<Report> make_report(Request request);
std::string to_text(const Report& report, int loads);
std::string to_json(const Report& report, int loads);

}  // namespace treering::sim_view
