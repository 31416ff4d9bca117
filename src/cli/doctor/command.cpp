// `treering doctor`: is this machine fit for a job, and what to do where it is not?
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "treering/treering.h"

#include "cli/commands.hpp"
#include "cli/doctor/facts.hpp"

namespace treering {
namespace doctor {

std::string to_text(const std::vector<Finding>& findings) {
  std::string text;
  std::size_t problems = 0, notes = 0;
  for (const Finding& f : findings) {
    problems += f.level == Level::kProblem;
    notes += f.level == Level::kNote;
    std::string level = level_name(f.level);
    level.resize(std::max<std::size_t>(level.size(), 7), ' ');
    text += level + "  " + f.check + ": " + f.text + "\n";
    if (!f.advice.empty()) text += "         " + f.advice + "\n";
  }
  return text + std::to_string(findings.size()) + " checks, " + std::to_string(problems) +
         (problems == 1 ? " problem, " : " problems, ") + std::to_string(notes) +
         (notes == 1 ? " note\n" : " notes\n");
}

std::string to_json(const Facts& facts, const std::vector<Finding>& findings) {
  nlohmann::ordered_json j{{"host", facts.host_name}, {"treering", facts.treering}};
  j["findings"] = nlohmann::ordered_json::array();
  for (const Finding& f : findings) {
    nlohmann::ordered_json one{
        {"check", f.check}, {"level", level_name(f.level)}, {"text", f.text}};
    if (!f.advice.empty()) one["advice"] = f.advice;
    j["findings"].push_back(std::move(one));
  }
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

namespace {

struct Options {
  int ranks = 0;  // 0: as many as CPUs
  int port = 0;
  bool json = false;
};

int examine(const Options& options) {
  Facts facts = gather(options.port);
  const int version = tr_version();
  facts.treering = std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
                   "." + std::to_string(version % 100);
  const int ranks = options.ranks > 0 ? options.ranks : std::max(1, facts.allowed_cpus);
  const std::vector<Finding> findings = judge(facts, ranks);
  const std::string text = options.json ? to_json(facts, findings) : to_text(findings);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.level == Level::kProblem; })
             ? 1
             : 0;
}

}  // namespace
}  // namespace doctor

void add_doctor_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Check this machine: memory, limits, network, CPUs, GPUs; say what to do");
  auto options = std::make_shared<doctor::Options>();
  command->add_option("-n,--ranks", options->ranks, "ranks that are to run here")
      ->check(CLI::Range(1, 4096))
      ->default_str("one a CPU");
  command->add_option("--port", options->port, "a port that ranks are to use (TR_STORE_PORT)")
      ->check(CLI::Range(1, 65535));
  command->add_flag("--json", options->json, "print JSON");
  command->callback([options] {
    if (const int status = doctor::examine(*options); status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace treering
