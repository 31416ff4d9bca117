#include "train/options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

namespace train {
namespace {

using CLI::IsMember;
using tr::par::MeshShape;
constexpr int kUsageError = 2;

// Numbers as flags take them. CLI11's own ranges let NaN through, and its errors do not say why.
constexpr std::int64_t kMostRanks = 1 << 20, kMostRows = 1 << 30, kMostWidth = 1 << 24;
constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();

CLI::Validator whole(std::int64_t least, std::int64_t most = kMostInt) {
  return {[least, most](std::string& text) {
            std::int64_t number = 0;
            const char* const end = text.data() + text.size();
            const auto parsed = std::from_chars(text.data(), end, number);
            const bool holds =
                parsed.ec == std::errc() && parsed.ptr == end && least <= number && number <= most;
            return holds ? std::string()
                         : "must be a whole number from " + std::to_string(least) + " to " +
                               std::to_string(most) + ", not " + text;
          },
          ""};
}

// In [least, most], or without the ends. The rule says so in words.
CLI::Validator number(double least, double most, bool with_ends, const std::string& rule) {
  return {[=](std::string& text) {
            double number = 0;
            const bool is_number = CLI::detail::lexical_cast(text, number);
            const bool is_inside =
                with_ends ? number >= least && number <= most : number > least && number < most;
            return is_number && is_inside ? std::string() : "must be " + rule + ", not " + text;
          },
          ""};
}
CLI::Validator positive() { return number(0, HUGE_VAL, false, "a finite number larger than 0"); }
CLI::Validator not_negative() {
  return number(0, std::numeric_limits<double>::max(), true, "a finite number, 0 or larger");
}
CLI::Validator mebibytes() {
  return number(0, 1 << 30, false, "a number larger than 0 and less than 2^30");
}
CLI::Validator share(double most, const std::string& most_text) {
  return number(0, most, true, "a number from 0 to " + most_text);
}

void declare_task(CLI::App& app, Options& o) {
  app.add_option("--data", o.data, "what to learn")
      ->check(IsMember({"digits", "fashion", "noise", "bytes"}));
  app.add_option("--data-path", o.data_path, "folder or file of the data");
  app.add_option("--hidden", o.hidden, "widths of the hidden layers, such as 256,128")
      ->delimiter(',')
      ->check(whole(1, kMostWidth));
  app.add_option("--activation", o.activation, "after hidden layers")
      ->check(IsMember({"relu", "gelu", "none"}));
  app.add_flag("--norm", o.norm, "LayerNorm before each hidden layer");
  app.add_option("--dropout", o.dropout, "probability, after hidden layers")
      ->check(share(0.99, "0.99"));
  app.add_option("--epochs", o.epochs, "passes over the data (0: the data's default)")
      ->check(whole(0));
  app.add_option("--steps", o.steps, "stop after so many steps (0: no limit)")->check(whole(0));
  app.add_option("--batch", o.batch, "rows per step, of all ranks together")
      ->check(whole(1, kMostRows));
  app.add_option("--lr", o.lr, "learning rate")->check(positive());
  app.add_option("--optimizer", o.optimizer)->check(IsMember({"adamw", "sgd"}));
  app.add_option("--momentum", o.momentum, "of sgd")->check(share(0.999, "0.999"));
  app.add_option("--seed", o.trainer.seed, "of initial weights, dropout and shuffles");
}

void declare_layout(CLI::App& app, Options& o) {
  auto& t = o.trainer;
  app.add_option("--dp", t.mesh.dp, "data-parallel replicas (0: as many as ranks allow)")
      ->check(whole(0, kMostRanks));
  app.add_option("--pp", t.mesh.pp, "pipeline stages' ranks")->check(whole(1, kMostRanks));
  app.add_option("--tp", t.mesh.tp, "tensor-parallel ranks")->check(whole(1, kMostRanks));
  app.add_option("--tp-mode", o.tp_mode,
                 "gather: all layers by columns; megatron: pairs, by columns and by rows")
      ->check(IsMember({"gather", "megatron", "replicate"}));
  app.add_flag("--sp", o.sequence_parallel, "sequence parallelism: rows are shared between pairs");
  app.add_option("--tp-chunks", t.tp_chunks, "pieces of a GEMM next to a gather or scatter")
      ->check(whole(1));
  app.add_option("--vpp", t.stages_per_rank, "stages of a rank (schedule interleaved)")
      ->check(whole(1, kMostRanks));
  app.add_option("--stages", o.stages, "layers of each stage, such as 3,3,4");
  app.add_option("--schedule", o.schedule,
                 "naive, gpipe, 1f1b, interleaved, zb-h1, or a file.csv; 1f1b if not given");
  app.add_option("--micro-batch", t.micro_batch, "rows (0: a replica's whole share)")
      ->check(whole(0, kMostRows));
  app.add_option("--zero", t.zero, "ZeRO stage")->check(whole(0, 3));
  app.add_option("--bucket-mb", o.bucket_mb, "largest gradient bucket, MiB")->check(mebibytes());
  app.add_option("--first-bucket-mb", o.first_bucket_mb, "largest first bucket, MiB")
      ->check(mebibytes());
  app.add_option("--overlap", o.overlap, "communicate beside computing")
      ->check(IsMember({"on", "off"}));
  app.add_option("--compress", o.compress, "gradients between replicas")
      ->check(IsMember({"bf16", "int8"}));
  app.add_option("--recompute", o.recompute, "what the backward pass computes again")
      ->check(IsMember({"none", "activation", "full"}));
  app.add_option("--dtype", o.dtype, "of parameters and activations")
      ->check(IsMember({"fp64", "fp32", "bf16", "fp16"}));
  app.add_option("--loss-scale", o.loss_scale,
                 "auto (dynamic with fp16), off, dynamic or a number");
  app.add_option("--clip", t.clip_norm, "largest norm of the gradient (0: any)")
      ->check(not_negative());
  app.add_option("--reduce-order", o.reduce_order,
                 "rank: sums fold in rank order, so that bits equal the serial run's")
      ->check(IsMember({"algorithm", "rank"}));
}

void declare_machine(CLI::App& app, Options& o) {
  app.add_option("--backend", o.backend, "who moves the bytes; count: nobody, a dry run")
      ->check(IsMember({"treering", "threads", "mpi", "gloo", "nccl", "count"}));
  app.add_option("--ranks", o.ranks, "of backends threads and count (0: dp pp tp)")
      ->check(whole(0, kMostRanks));
  app.add_option("--device", o.device,
                 "who computes; cuda: a GPU, with ranks that are threads one for all")
      ->check(IsMember({"host", "cuda"}));
  app.add_option("--gemm", o.gemm, "matrix products; auto: the fastest that the device has")
      ->check(IsMember({"auto", "ref", "openblas", "cublas"}));
  app.add_option("--timeout", o.timeout_s, "seconds until a wait is an error (0: TR_TIMEOUT_S)")
      ->check(number(0, 1e6, true, "a number of seconds from 0 to 1000000"));
  CLI::Option* const links =
      app.add_option("--sim-bw", o.simulate_gbs,
                     "simulated links: GB/s within a node and between nodes, such as 436,34")
          ->delimiter(',')
          ->expected(2)
          ->check(positive());
  app.add_option("--ranks-per-node", o.ranks_per_node, "of simulated links (0: all)")
      ->check(whole(0, kMostRanks))
      ->needs(links);
  app.add_option(
      "--algo", o.algo,
      "algorithms to force: ring is all_reduce's; or as all_reduce:tree,all_gather:ring");
  app.add_option("--peak-gflops", o.peak_gflops, "of a rank, for MFU (0: a GEMM is timed)")
      ->check(not_negative());
  CLI::Option* const save = app.add_option("--save", o.save, "folder of checkpoints");
  app.add_option("--save-every", o.save_every, "steps (0: at the end)")
      ->check(whole(0))
      ->needs(save);
  app.add_option("--load", o.load, "folder of checkpoints: goes on where the newest ends");
  app.add_option("--log-every", o.log_every, "a line every so many steps (0: every epoch)")
      ->check(whole(0));
  app.add_option("--metrics", o.metrics, "append JSON lines to this file");
  app.add_option("--trace", o.trace, "write what every rank did, for ui.perfetto.dev");
  app.add_flag("--comm-log", o.comm_log, "at the end, rank 0's communication by call and size");
  app.add_option("--check-sync", o.check_sync,
                 "compare the replicas' parameters every so many steps (0: only at the end)")
      ->check(whole(0));
  app.add_flag("--nan-check", o.trainer.check_finite,
               "look for NaN in each rank's gradients before they are summed");
  app.add_option("--inject", o.inject,
                 "a fault: nan:RANK:STEP, slow:RANK:MS, kill:RANK:STEP, skip:RANK:STEP");
  app.add_flag("--verify", o.verify,
               "rank 0 trains alone, too, and compares (see examples/README.md)");
  app.add_option("--min-accuracy", o.min_accuracy, "fail below this test accuracy")
      ->check(share(1.0, "1"));
  app.add_flag("--print-config", o.print_config, "print all settings and end");
}

// What the flags say together that makes no sense, or that nobody would heed.
std::string contradiction(const CLI::App& app, const Options& o) {
  const MeshShape& mesh = o.trainer.mesh;
  const std::int64_t ranks = std::int64_t{std::max(mesh.dp, 1)} * mesh.pp;
  if (ranks > kMostRanks || ranks * mesh.tp > kMostRanks) {
    return "--dp " + std::to_string(mesh.dp) + " x --pp " + std::to_string(mesh.pp) + " x --tp " +
           std::to_string(mesh.tp) + ": more than " + std::to_string(kMostRanks) + " ranks";
  }
  if (app.count("--momentum") > 0 && o.optimizer != "sgd") {
    return "--momentum: of --optimizer sgd; " + o.optimizer + " has none";
  }
  const bool makes_ranks = o.backend == "threads" || o.backend == "count";
  if (o.ranks > 0 && !makes_ranks) {
    return "--ranks: of backends threads and count; how many ranks of backend " + o.backend +
           " there are, their launcher says";
  }
  if (!o.algo.empty() && o.backend != "treering" && o.backend != "threads") {
    return "--algo: of backends treering and threads; " + o.backend + " chooses itself";
  }
  if (o.data == "noise" && !o.data_path.empty()) return "--data-path: noise is made, not read";
  if (o.data == "noise" && o.min_accuracy > 0) return "--min-accuracy: noise has no test";
  if (o.backend == "count" && o.comm_log) return "--comm-log: backend count takes no time";
  return {};
}

// What the words mean; the error says which word makes no sense.
std::string translate(Options& o) {
  auto& t = o.trainer;
  using namespace tr::par;
  t.type = o.dtype == "fp64"   ? DType::kFloat64
           : o.dtype == "bf16" ? DType::kBFloat16
           : o.dtype == "fp16" ? DType::kFloat16
                               : DType::kFloat32;
  t.recompute = o.recompute == "full"         ? Recompute::kFull
                : o.recompute == "activation" ? Recompute::kActivation
                                              : Recompute::kNone;
  t.overlap = o.overlap == "on";
  t.rank_order = o.reduce_order == "rank";
  t.bucket_bytes = static_cast<std::int64_t>(o.bucket_mb * (1 << 20));
  t.first_bucket_bytes = static_cast<std::int64_t>(o.first_bucket_mb * (1 << 20));
  t.optimizer.is_adamw = o.optimizer == "adamw";
  t.optimizer.adamw.lr = t.optimizer.sgd_lr = o.lr;
  t.optimizer.sgd_momentum = o.momentum;
  if (o.loss_scale == "dynamic" || (o.loss_scale == "auto" && o.dtype == "fp16")) {
    t.scaler = LossScaler::dynamic();
  } else if (o.loss_scale != "auto" && o.loss_scale != "off") {
    double scale = 0.0;
    if (!CLI::detail::lexical_cast(o.loss_scale, scale) || !(scale > 0) || !std::isfinite(scale)) {
      return "--loss-scale: auto, off, dynamic or a finite number larger than 0, not " +
             o.loss_scale;
    }
    t.scaler = LossScaler::fixed(scale);
  }
  const bool is_for_gpu = o.backend == "treering" || o.backend == "threads" || o.backend == "nccl";
  if (o.device == "cuda" && !is_for_gpu) {
    return "--device cuda: backends treering, threads and nccl move memory of a GPU, not " +
           o.backend;
  }
  std::istringstream stages(o.stages);
  for (std::string number; std::getline(stages, number, ',');) {
    int layers = 0;
    const char* const end = number.data() + number.size();
    if (std::from_chars(number.data(), end, layers).ptr != end || layers < 1) {
      return "--stages: numbers of layers such as 3,3,4, not " + o.stages;
    }
    t.stage_layers.push_back(layers);
  }
  if (o.schedule.ends_with(".csv")) {
    std::ifstream file(o.schedule);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) return "--schedule: cannot read " + o.schedule;
    t.schedule_csv = text.str();
  } else if (!o.schedule.empty()) {
    t.schedule = o.schedule;
  } else {
    t.schedule = t.stages_per_rank > 1 ? "interleaved" : "1f1b";
  }
  return {};
}

}  // namespace

bool parse_options(int argc, char** argv, const char* what, Options& options, int* exit_status) {
  CLI::App app(what);
  app.option_defaults()->always_capture_default();
  options.trainer.mesh.dp = 0;
  std::string preset;
  declare_task(app, options);
  declare_layout(app, options);
  declare_machine(app, options);
  CLI::Option* const presets =
      app.add_option("--preset", preset,
                     "cs336: 4 layers of 1024 x 1024 with GELU, 128 rows of noise, loss mean(x^2)")
          ->check(IsMember({"cs336"}));
  app.get_option("--data")->excludes(presets);
  try {
    app.parse(argc, argv);
    if (preset == "cs336") options.data = "noise";
    std::string wrong = contradiction(app, options);
    if (wrong.empty()) wrong = translate(options);
    if (!wrong.empty()) throw CLI::ValidationError(wrong);
  } catch (const CLI::ParseError& error) {
    *exit_status = app.exit(error) == 0 ? 0 : kUsageError;
    return false;
  }
  if (options.print_config) std::puts(app.config_to_str(true, false).c_str());
  return true;
}

}  // namespace train
