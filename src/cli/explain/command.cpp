// `treering explain`: the command line.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "cli/commands.hpp"
#include "cli/explain/choice.hpp"
#include "cli/explain/report.hpp"

namespace treering {
namespace {

using explain::Request;

Status write_page(const explain::Report& report, const std::string& path) {
  TR_ASSIGN_OR_RETURN(const std::string page, explain::to_html(report));
  std::ofstream file(path, std::ios::binary);
  if (!file) return system_error("cannot open '" + path + "' for writing", errno);
  file << page;
  file.close();
  if (!file) return system_error("cannot write '" + path + "'", errno);
  std::printf("wrote %s (%zu KiB): open it in a browser; space plays, the arrow keys step\n",
              path.c_str(), page.size() / 1024);
  return {};
}

// Without --algo. -n leaves out what does not run over so many ranks; the other options are about
// one algorithm.
Status list(const Request& request, const HostMap* hosts, const CLI::App& command) {
  std::optional<Collective> collective;
  if (!request.op.empty()) {
    TR_ASSIGN_OR_RETURN(collective, explain::parse_collective(request.op));
  }
  const bool is_for_ranks = hosts != nullptr || command.get_option("--ranks")->count() > 0;
  TR_RETURN_IF_ERROR(explain::check_ranks(request.ranks));
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "op" || name == "--ranks" || name == "--hosts") continue;
    return invalid_argument(
        name + " needs --algo" +
        (collective ? "; choose one of: " +
                          algos::algorithm_names(*collective, request.ranks, nullptr, hosts)
                    : ", and an operation before it"));
  }
  std::printf("%s\ntreering explain %s --algo A -n N shows the steps of one of them.\n",
              explain::list_algorithms(collective, is_for_ranks ? request.ranks : 0, hosts).c_str(),
              collective ? request.op.c_str() : "OP");
  return {};
}

// An operation and its length without --algo: which one would be chosen?
Status choose(const Request& request, const std::string& tuning) {
  TR_ASSIGN_OR_RETURN(const Collective collective, explain::parse_collective(request.op));
  TR_RETURN_IF_ERROR(explain::check_ranks(request.ranks));
  TR_ASSIGN_OR_RETURN(const std::string text,
                      explain::explain_choice(collective, request.ranks, request.bytes, tuning));
  std::fputs(text.c_str(), stdout);
  return {};
}

Status run(Request& request, const CLI::App& command, const std::string& tuning) {
  const auto given = [&](const char* name) { return command.get_option(name)->count() > 0; };
  if (!given("--algo") && given("--bytes") && given("op")) {
    for (const char* name :
         {"--type", "--slice", "--root", "--rank", "--json", "--html", "--hosts"}) {
      if (given(name)) return invalid_argument(std::string(name) + " needs --algo");
    }
    return choose(request, tuning);
  }
  TR_ASSIGN_OR_RETURN(std::optional<HostMap> hosts,
                      explain::parse_hosts(request, given("--ranks")));
  if (!given("--algo")) return list(request, hosts ? &*hosts : nullptr, command);
  TR_ASSIGN_OR_RETURN(const explain::Report report,
                      explain::make_report(request, std::move(hosts)));
  if (!request.html.empty()) return write_page(report, request.html);
  const std::string text =
      request.json ? explain::to_json(report) + "\n" : explain::to_text(report, request.rank);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

}  // namespace

void add_explain_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "explain", "Show what every rank does in a collective, step by step (nothing is executed)");
  auto request = std::make_shared<Request>();
  command->add_option("op", request->op,
                      "all_reduce, broadcast, ...; without it: list all algorithms");
  command->add_option("--algo", request->algorithm,
                      "ring, tree, ...; without it: list those of OP");
  command
      ->add_option("-n,--ranks", request->ranks,
                   "number of ranks; without --algo: list those for N")
      ->capture_default_str();
  command->add_option("--hosts", request->hosts,
                      "which ranks share a host: 2x4 (2 hosts of 4 ranks), 2+1, or 0,1,0,1");
  command->add_option("--bytes", request->bytes, "size S of the vector, such as 64M")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("1M");
  command->add_option("--type", request->type, "element type")->capture_default_str();
  command->add_option("--slice", request->slice_bytes, "most bytes that one message carries")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("a whole chunk");
  command->add_option("--root", request->root, "root of broadcast, reduce, gather, scatter")
      ->capture_default_str();
  command->add_option("--rank", request->rank, "show the steps of this rank only");
  command->add_flag("--json", request->json, "print schedule, times and counts as JSON");
  command->add_option("--html", request->html, "write a page that plays the schedule to this file");
  auto tuning = std::make_shared<std::string>();
  command
      ->add_option("--tune", *tuning,
                   "OP and --bytes without --algo: predict by what treering tune stored there")
      ->envname("TR_TUNE_FILE");
  command->callback([request, command, tuning] {
    const Status status = run(*request, *command, *tuning);
    if (status.ok()) return;
    std::fprintf(stderr, "treering explain: %s\n", status.message().c_str());
    throw CLI::RuntimeError(2);
  });
}

}  // namespace treering
