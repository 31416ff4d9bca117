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

void print_version() {
  const int version = tr_version();
  std::printf("treering %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
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
  app.require_subcommand(1);
  treering::add_run_command(app, from_dashes);
#ifdef TR_HAVE_PERF
  treering::add_perf_command(app);
#endif
  treering::add_explain_command(app);
  treering::add_env_command(app);
  app.add_subcommand("version", "Print the version")->callback(print_version);

  constexpr int kUsageError = 2;
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
  } catch (const CLI::RuntimeError& end) {
    return end.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return 0;
}
