// `treering topo`: the command line.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/commands.hpp"
#include "cli/topo/view.hpp"
#include "topo/compare.hpp"
#include "topo/live.hpp"
#include "topo/read.hpp"
#include "topo/write.hpp"

namespace treering {
namespace {

struct Options {
  std::string file;  // empty: this machine
  std::string against;
  std::string html, json, xml;
  topo::LiveOptions live;
  bool no_measure = false;
  bool rings = false;
  topo::SearchOptions search;
};

Status write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return Status();
  }
  std::ofstream file(path, std::ios::binary);
  if (!file) return system_error("cannot open '" + path + "' for writing", errno);
  file << text;
  file.close();
  if (!file) return system_error("cannot write '" + path + "'", errno);
  std::printf("wrote %s (%zu KiB)\n", path.c_str(), (text.size() + 1023) / 1024);
  return Status();
}

Result<topo::Graph> load(const Options& options) {
  if (!options.file.empty()) return topo::read_file(options.file);
  topo::LiveOptions live = options.live;
  if (options.no_measure) live.measure_ms = 0;
  return topo::read_live(live);
}

Status run(const Options& options) {
  TR_ASSIGN_OR_RETURN(topo::Graph graph, load(options));
  if (!options.against.empty()) {
    TR_ASSIGN_OR_RETURN(const topo::Graph other, topo::read_file(options.against));
    topo::compare(graph, other);
  }
  if (options.rings) {
    TR_ASSIGN_OR_RETURN(const topo::RingPlan rings, topo::find_rings(graph, options.search));
    const topo::TreePlan trees = topo::find_trees(graph, rings, options.search);
    const std::string text = topo_view::to_text(graph, rings, trees);
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else if (options.html.empty() && options.json.empty() && options.xml.empty()) {
    const std::string text = topo_view::to_text(graph);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return Status();
  }
  if (!options.html.empty()) {
    TR_ASSIGN_OR_RETURN(const std::string page, topo_view::to_html(graph, options.search));
    TR_RETURN_IF_ERROR(write_file(options.html, page));
  }
  if (!options.json.empty()) TR_RETURN_IF_ERROR(write_file(options.json, topo::to_json(graph)));
  if (!options.xml.empty()) {
    TR_ASSIGN_OR_RETURN(const std::string xml, topo::to_nccl_xml(graph));
    TR_RETURN_IF_ERROR(write_file(options.xml, xml));
  }
  return Status();
}

}  // namespace

void add_topo_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "topo", "Show what a machine or cluster consists of, and what is wrong with its description");
  auto options = std::make_shared<Options>();
  command->add_option(
      "file", options->file,
      "NCCL or hwloc XML, nvidia-smi topo -m, topograph YAML, a measured matrix, or "
      "our JSON; without it: this machine");
  command->add_option("--against", options->against,
                      "another description of the same machine: contradictions are findings");
  command->add_flag("--rings", options->rings,
                    "search rings and trees instead: order, bandwidth, and what limits them");
  command
      ->add_option("--machines", options->search.machines,
                   "--rings, --html: so many machines like this one, joined by their NICs")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--html", options->html, "write a page that draws it to this file");
  command->add_option("--json", options->json, "write all that is known as JSON (-: print it)");
  command->add_option("--xml", options->xml, "write NCCL's topology XML (-: print it)");
  command
      ->add_option("--root", options->live.root,
                   "where sys and proc of this machine are, such as a host's in a container")
      ->capture_default_str();
  command->add_option("--nvml", options->live.nvml, "NVIDIA's library to ask; empty: none")
      ->capture_default_str();
  command->add_flag("--no-measure", options->no_measure,
                    "leave out the distances between cores (a quarter of a second)");
  command->callback([options] {
    const Status status = run(*options);
    if (status.ok()) return;
    std::fprintf(stderr, "treering topo: %s\n", status.message().c_str());
    throw CLI::RuntimeError(2);
  });
}

}  // namespace treering
