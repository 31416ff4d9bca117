// What a training layout costs, before it is run: memory a rank, bytes a step, bubble, time, MFU;
// and which layout to take.
//
//   plan                                                    # a 7 B transformer on 64 GPUs
//   plan --layers 80 --hidden 8192 --heads 64 --parameters 70e9 --ranks 256 --batch 1024
//   plan --mlp --layers 4 --hidden 1024 --fp32 --batch 128 --ranks 4 --dp 2 --pp 2
//
// With --dp, --pp or --tp (the others are then 1) it prints that layout only. Speeds are in FLOP/s
// and bytes/s, memory in bytes.
#include "treering/parallel/plan.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "must.hpp"

using example::must;

namespace {

struct Request {
  bool is_mlp = false, is_layout_given = false;
  double layers = 32, hidden = 4096, heads = 32, sequence = 4096, parameters = 0, batch = 1024;
  tr::par::Precision precision;
  tr::par::Cluster cluster;
  tr::par::LayoutChoice layout;
};

constexpr const char* kUsage =
    "plan [--mlp] [--layers N] [--hidden N] [--heads N] [--sequence N] [--parameters N] [--batch "
    "N]\n"
    "     [--fp32] [--ranks N] [--node N] [--peak FLOPS] [--efficiency SHARE] [--intra B] [--inter "
    "B]\n"
    "     [--memory B] [--dp N] [--pp N] [--tp N] [--zero 0-3] [--micro-batch N] [--schedule "
    "NAME]\n"
    "     [--stages N] [--gather] [--sp] [--recompute]\n";

[[noreturn]] void refuse(const std::string& what) {
  std::fprintf(stderr, "plan: %s\n%s", what.c_str(), kUsage);
  std::exit(2);
}

double number(std::string_view option, const char* text) {
  if (text == nullptr) refuse(std::string(option) + " needs a value");
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  constexpr double kMost = 1e18;
  if (end == text || *end != '\0' || !(value >= 0.0 && value <= kMost)) {
    refuse(std::string(option) + " " + text + ": not a number");
  }
  return value;
}
int whole(std::string_view option, const char* text) {
  const double value = number(option, text);
  if (value > 1e9) refuse(std::string(option) + " " + text + ": too much");
  return static_cast<int>(value);
}

// True if the option has no value.
bool set_switch(Request& request, std::string_view option) {
  if (option == "--mlp") {
    request.is_mlp = true;
  } else if (option == "--fp32") {
    request.precision = tr::par::Precision::fp32();
  } else if (option == "--gather") {
    request.layout.is_megatron = false;
  } else if (option == "--sp") {
    request.layout.is_sequence_parallel = true;
  } else if (option == "--recompute") {
    request.layout.recompute = tr::par::Recompute::kFull;
  } else {
    return false;
  }
  return true;
}

void set_value(Request& request, std::string_view option, const char* text) {
  const struct {
    std::string_view name;
    double* value;
  } kNumbers[] = {
      {"--layers", &request.layers},
      {"--hidden", &request.hidden},
      {"--heads", &request.heads},
      {"--sequence", &request.sequence},
      {"--batch", &request.batch},
      {"--parameters", &request.parameters},
      {"--peak", &request.cluster.peak_flops},
      {"--efficiency", &request.cluster.efficiency},
      {"--intra", &request.cluster.intra_bytes_per_s},
      {"--inter", &request.cluster.inter_bytes_per_s},
      {"--memory", &request.cluster.memory_bytes},
  };
  for (const auto& one : kNumbers) {
    if (option == one.name) *one.value = number(option, text);
    if (option == one.name) return;
  }
  tr::par::LayoutChoice& layout = request.layout;
  const struct {
    std::string_view name;
    int* value;
    bool is_layout;
  } kWholes[] = {
      {"--ranks", &request.cluster.ranks, false},
      {"--node", &request.cluster.ranks_per_node, false},
      {"--dp", &layout.dp, true},
      {"--pp", &layout.pp, true},
      {"--tp", &layout.tp, true},
      {"--zero", &layout.zero, false},
      {"--stages", &layout.stages_per_rank, false},
  };
  for (const auto& one : kWholes) {
    if (option != one.name) continue;
    *one.value = whole(option, text);
    request.is_layout_given |= one.is_layout;
    return;
  }
  if (option == "--micro-batch") {
    layout.micro_batch = whole(option, text);
  } else if (option == "--schedule" && text != nullptr) {
    layout.schedule = text;
  } else {
    refuse("there is no option " + std::string(option));
  }
}

Request request_of(int argc, char** argv) {
  Request request;
  request.cluster.ranks = 64;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--help" || std::string_view(argv[i]) == "-h") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    }
    if (set_switch(request, argv[i])) continue;
    set_value(request, argv[i], i + 1 < argc ? argv[i + 1] : nullptr);
    ++i;
  }
  return request;
}

tr::par::ModelShape model_of(const Request& request) {
  const auto layers = static_cast<int>(request.layers);
  const auto hidden = static_cast<std::int64_t>(request.hidden);
  if (request.is_mlp) return tr::par::ModelShape::mlp(layers, hidden);
  return tr::par::ModelShape::transformer(layers, hidden, static_cast<int>(request.heads),
                                          static_cast<std::int64_t>(request.sequence),
                                          request.parameters);
}

}  // namespace

int main(int argc, char** argv) {
  const Request request = request_of(argc, argv);
  const tr::par::Workload workload{model_of(request), static_cast<std::int64_t>(request.batch),
                                   request.precision};
  const double parameters = workload.model.parameters;
  const int bytes_each = workload.precision.state();
  std::printf("%s parameters, %d bytes each: %s\n", tr::par::short_number(parameters).c_str(),
              bytes_each, tr::par::short_number(parameters * bytes_each, "B").c_str());
  if (request.is_layout_given) {
    const tr::par::Plan plan = must(tr::par::make_plan(workload, request.cluster, request.layout));
    std::fputs(to_string(plan).c_str(), stdout);
    return plan.fits ? 0 : 3;
  }
  const tr::par::Recommendation best = must(tr::par::recommend(workload, request.cluster));
  std::fputs(to_string(best.plan).c_str(), stdout);
  for (const std::string& reason : best.reasons) std::printf("- %s.\n", reason.c_str());
}
