// `treering perf`. Exit status: 0 fine, 1 wrong results, 2 bad usage, 3 a size is below
// --min-ratio, 4 a library could not be started or run, 128 + n ended by signal n.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include "cli/commands.hpp"
#include "cli/perf/bench.hpp"
#include "cli/perf/contenders.hpp"
#include "cli/perf/options.hpp"
#include "cli/perf/report.hpp"
#include "cli/perf/table.hpp"
#include "cli/perf/team.hpp"
#include "cli/perf/treering_library.hpp"

namespace treering {
namespace perf {
namespace {

enum Status : int { kFine = 0, kWrongResults = 1, kBadUsage = 2, kBelowRatio = 3, kCannotRun = 4 };
constexpr int kSignalled = 128;  // plus the signal

int complain(int status, const std::string& what) {
  std::fprintf(stderr, "treering perf: %s\n", what.c_str());
  return status;
}

// This process's arguments, with spaces between.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) {
    if (c == '\0') c = ' ';
  }
  return text;
}

Failure measure_all(const Job& job, Bench& bench, const Table& table, ProgressBar& bar,
                    std::vector<Row>* all) {
  for (const tr_type_t type : job.types) {
    for (const RedOp redop : job.redops) {
      if (!is_defined(job.op, redop, type)) continue;
      for (const Case& what : bench.cases(type, redop)) {
        std::vector<Row> rows;
        if (Failure failure = bench.measure(what, &rows)) return failure;
        bar.clear();
        table.print_rows(rows);
        all->insert(all->end(), rows.begin(), rows.end());
      }
    }
  }
  return std::nullopt;
}

bool has_ratio(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.timing[0].ratio || row.timing[1].ratio) return true;
  }
  return false;
}

int judge(const Job& job, const std::vector<Row>& rows) {
  if (count_wrong(rows) > 0) return kWrongResults;
  if (!(job.options.min_ratio > 0)) return kFine;
  if (!has_ratio(rows)) return complain(kCannotRun, "--min-ratio: no peer could run this");
  return below_ratio(rows, job.options.min_ratio).empty() ? kFine : kBelowRatio;
}

int run(const Options& options) {
  if (options.list_peers) {
    for (const std::string& peer : peers_present()) std::printf("%s\n", peer.c_str());
    return kFine;
  }
  Job job;
  if (Failure failure = resolve(options, &job)) return complain(kBadUsage, *failure);
  std::vector<TeamPlan> plans;
  bool is_usage_failure = false;
  if (Failure failure = plan_teams(job, &plans, &is_usage_failure)) {
    return complain(is_usage_failure ? kBadUsage : kCannotRun, *failure);
  }

  Interrupt interrupt;
  Teams teams;
  ProgressBar bar;
  Report report;
  report.command = command_line();
  report.date = now_text();
  const auto give_up = [&](int status, const std::string& what) {
    bar.clear();
    teams.stop(false);
    if (interrupt.signal() != 0) return kSignalled + interrupt.signal();
    return complain(status, what);
  };

  std::vector<TeamSpec> specs;
  for (const TeamPlan& plan : plans) specs.push_back(plan.spec);
  bar.show(0, 1, "starting the workers");
  if (Failure failure = teams.start(specs, job.options.ranks, job.options.timeout_s, interrupt)) {
    return give_up(kCannotRun, *failure);
  }
  const Machine machine = describe_machine();
  report.libraries.push_back(machine.cpu + ", " + machine.kernel);
  for (std::size_t i = 0; i < teams.size(); ++i) {
    report.libraries.push_back(teams[i].name() + ": " + teams[i].version() + " (" +
                               teams[i].launch_line() + ")");
  }
  bar.clear();
  Bench bench(job, plans, teams, interrupt,
              [&](int done, int all, const std::string& what) { bar.show(done, all, what); });
  if (Failure failure = bench.reserve()) return give_up(kCannotRun, *failure);
  const Table table(job);
  report.gpus = describe_gpus(job, teams[0], bench.copy_gb_s());
  report.copy_gb_s = bench.copy_gb_s();
  table.print_head(report.libraries, report.gpus);

  if (Failure failure = measure_all(job, bench, table, bar, &report.rows)) {
    return give_up(bench.is_usage_failure() ? kBadUsage : kCannotRun, *failure);
  }
  teams.stop(true);
  bar.clear();
  report.notes = bench.notes();
  table.print_end(report.rows, report.notes);
  if (interrupt.signal() != 0) return kSignalled + interrupt.signal();
  report.exit_status = judge(job, report.rows);
  if (!options.json_file.empty()) {
    if (Failure failure = write_json(options.json_file, job, report)) {
      return complain(kCannotRun, *failure);
    }
  }
  return report.exit_status;
}

}  // namespace
}  // namespace perf

void add_perf_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "perf", "Measure an operation: time, bandwidth, correctness, against peers if asked");
  auto options = std::make_shared<perf::Options>();
  perf::declare_options(*command, *options);
  command->callback([options] {
    if (const int status = perf::run(*options); status != 0) throw CLI::RuntimeError(status);
  });

  CLI::App* worker = app.add_subcommand("perf-worker", "One rank of `treering perf`")->group("");
  auto how = std::make_shared<perf::WorkerOptions>();
  worker->add_flag("--registered", how->registered, "register the buffers");
  worker->add_flag("--cuda", how->cuda, "use GPU memory");
  worker->add_option("--hosts", how->hosts, "hosts to play");
  worker->add_option("--threads", how->threads, "be all ranks, as threads");
  worker->callback([how] {
    if (const int status = perf::run_treering_worker(*how); status != 0) {
      throw CLI::RuntimeError(status);
    }
  });
}

}  // namespace treering
