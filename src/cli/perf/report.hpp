// The JSON file: the machine, the command, the settings and every number of the run.
#pragma once

#include <string>
#include <vector>

#include "cli/perf/bench.hpp"
#include "cli/perf/options.hpp"
#include "cli/perf/team.hpp"
#include "perf/failure.hpp"

namespace treering::perf {

struct Machine {
  std::string cpu;     // "AMD EPYC 9654"
  int cores = 0;       // online
  std::string kernel;  // "Linux 6.1.0 x86_64"
  double memory_gib = 0;
};
Machine describe_machine();

struct Report {
  std::string command;  // as typed
  std::string date;     // UTC, ISO 8601
  // The machine, then each library: "mpi-nocma: Open MPI v4.1.4 (mpirun ...)".
  std::vector<std::string> libraries;
  std::vector<std::string> gpus;  // describe_gpus()
  double copy_gb_s = 0;
  std::vector<Row> rows;
  std::vector<std::string> notes;
  int exit_status = 0;
};
std::string now_text();
Failure write_json(const std::string& path, const Job& job, const Report& report);

}  // namespace treering::perf
