// `treering tune`: the command line, and the table of regret.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "cli/commands.hpp"
#include "cli/tune/measure.hpp"
#include "tuner/choice.hpp"

namespace treering {
namespace {

using tune::Cell;

struct TuneOptions {
  std::string file;
  std::string against;  // a tuning to hold to account
  std::vector<int> sizes;
  double seconds = 45;
};

// Of one way to choose, over all cells.
struct Account {
  int cells = 0, good = 0;
  std::vector<double> errors;  // of predictions, in parts of the measured time
  std::string worst;
  double worst_regret = 0;
};

constexpr double kGoodRegret = 0.10;

std::string default_file() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  if (config != nullptr && *config != '\0') return std::string(config) + "/treering/tuning";
  return home != nullptr ? std::string(home) + "/.config/treering/tuning" : "treering-tuning";
}

Status write_tuning(const std::string& path, const std::string& text) {
  std::error_code ignored;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, ignored);
  std::ofstream file(path, std::ios::binary);
  if (!file) return system_error("cannot open '" + path + "' for writing", errno);
  file << text;
  file.close();
  if (!file) return system_error("cannot write '" + path + "'", errno);
  std::printf("wrote %s; export TR_TUNE_FILE=%s to choose by it\n", path.c_str(), path.c_str());
  return {};
}

double time_of(const Cell& cell, const algos::Algorithm* a) {
  const auto time = std::find_if(cell.times.begin(), cell.times.end(),
                                 [&](const Cell::Time& t) { return t.algorithm == a; });
  return time == cell.times.end() ? NAN : time->us;
}

// A line of the table, and what it adds to the account.
Status judge(const Cell& cell, const Tuning* tuning, Account& account) {
  ChoiceInput in;
  in.collective = cell.collective;
  in.size = cell.size;
  in.bytes = cell.bytes;
  in.link_bytes = in.cast_bytes = 128 << 10;  // of no account for the choice of an algorithm
  in.tuning = tuning;
  TR_ASSIGN_OR_RETURN(const Choice chosen, choose(in));
  const auto best =
      std::min_element(cell.times.begin(), cell.times.end(),
                       [](const Cell::Time& a, const Cell::Time& b) { return a.us < b.us; });
  const double us = time_of(cell, chosen.algorithm), regret = us / best->us - 1;
  ++account.cells;
  account.good += regret <= kGoodRegret;
  std::string predicted = "-";
  for (const Cell::Time& t : cell.times) {
    const auto p =
        tuning != nullptr ? tuning->predict_us(*t.algorithm, cell.size, cell.bytes) : std::nullopt;
    if (!p) continue;
    account.errors.push_back(std::abs(*p / t.us - 1));
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", *p);
    if (t.algorithm == chosen.algorithm) predicted = text;
  }
  char line[256];
  std::snprintf(line, sizeof line, "| %s | %d | %llu | %s | %s | %.1f | %s | %.1f | %.0f %% |\n",
                collective_name(cell.collective), cell.size,
                static_cast<unsigned long long>(cell.bytes), chosen.algorithm->name,
                predicted.c_str(), us, best->algorithm->name, best->us, 100 * regret);
  std::fputs(line, stdout);
  if (regret > account.worst_regret) {
    account.worst_regret = regret;
    account.worst = line;
  }
  return {};
}

Status print_account(const std::vector<Cell>& cells, const Tuning* tuning, const char* title) {
  std::printf(
      "\n## %s\n\n| operation | ranks | bytes | chosen | predicted us | its us | best | its us "
      "| regret |\n|---|---|---|---|---|---|---|---|---|\n",
      title);
  Account account;
  for (const Cell& cell : cells) TR_RETURN_IF_ERROR(judge(cell, tuning, account));
  std::printf("\nwithin 10 %% of the best: %d of %d cells (%.0f %%)", account.good, account.cells,
              100.0 * account.good / std::max(1, account.cells));
  if (!account.errors.empty()) {
    std::nth_element(account.errors.begin(), account.errors.begin() + account.errors.size() / 2,
                     account.errors.end());
    std::printf("; median error of %zu predictions: %.0f %%", account.errors.size(),
                100 * account.errors[account.errors.size() / 2]);
  }
  std::printf("\n");
  return {};
}

Status run(const TuneOptions& options) {
  for (const int n : options.sizes) {
    if (n < 2 || n > 64) return invalid_argument("-n: choose numbers of ranks from 2 to 64");
  }
  if (!(options.seconds >= 1 && options.seconds <= 3600)) {
    return invalid_argument("--seconds: choose 1 to 3600");
  }
  std::unique_ptr<Tuning> old;
  if (!options.against.empty()) {
    std::ifstream file(options.against, std::ios::binary);
    if (!file) return system_error("cannot open '" + options.against + "'", errno);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    TR_ASSIGN_OR_RETURN(Tuning tuning, Tuning::parse(text, options.against));
    old = std::make_unique<Tuning>(std::move(tuning));
  }
  tune::Plan plan = tune::default_plan(options.sizes);
  plan.seconds = options.seconds;
  // Between the sizes that were tuned, so that predictions are put to the test.
  if (old != nullptr) {
    for (std::uint64_t& bytes : plan.bytes) bytes = bytes * 2 / 8 * 8;
  }
  TR_ASSIGN_OR_RETURN(const std::vector<Cell> cells,
                      tune::measure(plan, [](const std::string& what) {
                        std::fprintf(stderr, "measuring %s\n", what.c_str());
                      }));
  if (old == nullptr) {
    return write_tuning(options.file.empty() ? default_file() : options.file,
                        tune::tuning_of(cells).text());
  }
  std::printf(
      "# Regret of the choice\n\n%s. Times are the best of three turns of all algorithms, of "
      "the slowest rank.\n",
      tune::machine_words().c_str());
  TR_RETURN_IF_ERROR(print_account(cells, nullptr, "By the rules alone"));
  return print_account(cells, old.get(), "By the rules and what was tuned");
}

}  // namespace

void add_tune_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "tune", "Measure every algorithm on this machine, to choose by (TR_TUNE_FILE)");
  auto options = std::make_shared<TuneOptions>();
  command->add_option("-o,--output", options->file,
                      "where to store it; without it: treering/tuning in the user's settings");
  command->add_option("--regret", options->against,
                      "measure again, and hold this stored tuning and the rules to account: a "
                      "Markdown table of what was chosen and what would have been best");
  command
      ->add_option("-n,--ranks", options->sizes,
                   "numbers of ranks; without it: 2, 4, ... up to the number of cores")
      ->delimiter(',');
  command->add_option("--seconds", options->seconds, "for all measurements, about")
      ->capture_default_str();
  command->callback([options] {
    const Status status = run(*options);
    if (status.ok()) return;
    std::fprintf(stderr, "treering tune: %s\n", status.message().c_str());
    throw CLI::RuntimeError(2);
  });
}

}  // namespace treering
