// The `treering` command.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "treering/treering.h"

#include "cli/commands.hpp"

namespace {

std::string version_text() {
  const int version = tr_version();
  return "treering " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

bool is_command(const CLI::App& app, std::string_view name) {
  return !app.get_subcommands([&](const CLI::App* c) { return c->get_name() == name; }).empty();
}

// The commands that a user may want, one a line.
std::string list_commands(const CLI::App& app) {
  std::string text = "The commands are\n";
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* c) {
         return !c->get_group().empty();  // perf-worker has none
       })) {
    std::string name = command->get_name();
    name.resize(std::max<std::size_t>(name.size(), 8), ' ');
    text += "  " + name + " " + command->get_description() + "\n";
  }
  return text + "treering COMMAND --help says more about one of them.\n";
}

}  // namespace

int main(int argc, char** argv) {
  char** dashes = argv + argc;
  if (argc > 1 && std::string_view(argv[1]) == "run") {
    dashes = std::find(argv, argv + argc, std::string_view("--"));
  }
  const std::vector<std::string> from_dashes(dashes, argv + argc);
  CLI::App app(
      "Treering: collective communication. Start ranks, measure operations, look at algorithms.");
  app.name("treering");
  app.set_version_flag("--version", version_text(), "Print the version");
  treering::add_run_command(app, from_dashes);
#ifdef TR_HAVE_PERF
  treering::add_perf_command(app);
#endif
  treering::add_explain_command(app);
  treering::add_topo_command(app);
  treering::add_status_command(app);
  treering::add_doctor_command(app);
  treering::add_sim_command(app);
  treering::add_tune_command(app);
  treering::add_env_command(app);
  app.add_subcommand("version", "Print the version")->callback([] {
    std::printf("%s\n", version_text().c_str());
  });

  constexpr int kUsageError = 2;
  // Before CLI11 sees it, which would only say that a word was not expected.
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first.empty() || (first[0] != '-' && !is_command(app, first))) {
    const std::string what =
        first.empty() ? "which command?" : "there is no command '" + std::string(first) + "'.";
    std::fprintf(stderr, "treering: %s %s", what.c_str(), list_commands(app).c_str());
    return kUsageError;
  }
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
  } catch (const CLI::RuntimeError& end) {
    return end.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return 0;
}
