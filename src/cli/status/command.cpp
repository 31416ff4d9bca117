// `treering status`: what the ranks of a running job are doing, from outside.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.hpp"
#include "cli/status/job.hpp"

namespace treering {
namespace {

struct Options {
  std::string name;
  bool json = false;
};

int show(const Options& options) {
  const Result<std::vector<status::Job>> jobs = status::find_jobs(options.name);
  if (!jobs.ok()) {
    std::fprintf(stderr, "treering status: %s\n", jobs.status().message().c_str());
    return 1;
  }
  std::string text;
  if (options.json) {
    text = status::to_json(jobs.value());
  } else {
    for (const status::Job& job : jobs.value()) {
      text += (text.empty() ? "" : "\n") + status::to_text(job);
    }
    if (text.empty()) text = "no communicator of this user is on this machine\n";
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

void add_status_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "status",
      "Show what the ranks of a running job do, and who waits for whom; it is not stopped");
  auto options = std::make_shared<Options>();
  command->add_option("job", options->name,
                      "a process id (of a rank, or of treering run), a communicator's number, or a "
                      "file of the flight recorder; without it: all of this user");
  command->add_flag("--json", options->json, "print JSON");
  command->callback([options] {
    if (const int result = show(*options); result != 0) throw CLI::RuntimeError(result);
  });
}

}  // namespace treering
