// `treering env`: the environment variables of the library, and what they are set to.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/commands.hpp"
#include "core/config.hpp"

namespace treering {
namespace {

int print_env() {
  for (const EnvVarInfo& var : env_table()) {
    const std::string default_value = var.default_value.empty() ? "not set" : var.default_value;
    std::printf("%s  (%s, default: %s)\n    %s\n    %s\n", var.name.c_str(), var.type.c_str(),
                default_value.c_str(), var.meaning.c_str(), var.range.c_str());
    // A job's key is a secret; it shall not end in a log.
    if (const char* value = std::getenv(var.name.c_str()); value != nullptr && *value != '\0') {
      std::printf("    now: %s\n", var.type == "key" || var.type == "secret" ? "(set)" : value);
    }
  }
  for (const std::string& name : unknown_env_vars()) {
    std::printf("%s  is set, but there is no such variable\n", name.c_str());
  }
  const auto config = load_config();
  if (config.ok()) return 0;
  std::fflush(stdout);
  std::fprintf(stderr, "treering env: %s\n", config.status().message().c_str());
  return 1;
}

}  // namespace

void add_env_command(CLI::App& app) {
  app.add_subcommand("env", "List the environment variables, their ranges and present values")
      ->callback([] {
        if (const int status = print_env(); status != 0) throw CLI::RuntimeError(status);
      });
}

}  // namespace treering
