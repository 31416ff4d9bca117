// The subcommands of `treering`, one function each. A callback ends the program with another exit
// status than 0 by throwing CLI::RuntimeError, CLI11's way; usage errors end with 2.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace treering {

// from_dashes: the command line from the first "--" on, which CLI11 would keep from a subcommand.
void add_run_command(CLI::App& app, const std::vector<std::string>& from_dashes);  // run.cpp
void add_env_command(CLI::App& app);                                               // env.cpp
void add_explain_command(CLI::App& app);  // explain/command.cpp
void add_topo_command(CLI::App& app);     // topo/command.cpp
void add_status_command(CLI::App& app);   // status/command.cpp
void add_doctor_command(CLI::App& app);   // doctor/command.cpp
void add_sim_command(CLI::App& app);      // sim/command.cpp
void add_tune_command(CLI::App& app);     // tune/command.cpp
void add_perf_command(CLI::App& app);     // perf/perf_command.cpp; only where perf is built

}  // namespace treering
