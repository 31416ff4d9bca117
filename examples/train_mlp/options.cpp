#include "train_mlp/options.hpp"

#include <CLI/CLI.hpp>

namespace train {
namespace {

constexpr int kUsageError = 2;

// CLI11's own would print a range of 308 digits.
CLI::Validator above_zero(bool or_zero) {
  const std::string rule = or_zero ? "0 or larger" : "larger than 0";
  return {[or_zero, rule](std::string& text) {
            double number = 0;
            const bool is_number = CLI::detail::lexical_cast(text, number);
            const bool holds = is_number && (number > 0 || (or_zero && number == 0));
            return holds ? std::string() : "must be " + rule + ", not " + text;
          },
          ""};
}

}  // namespace

bool parse_options(int argc, char** argv, Options& options, int* exit_status) {
  CLI::App app(
      "Trains a multi-layer perceptron, its batches split over the ranks. Alone it trains "
      "serially; "
      "over several ranks: treering run -n 4 -- 05_train_mlp ...");
  app.option_defaults()->always_capture_default();
  const CLI::Validator positive = above_zero(false), non_negative = above_zero(true);
  std::string preset, overlap = "on";
  app.add_option("--data", options.data, "what to learn")
      ->check(CLI::IsMember({"digits", "fashion", "noise"}));
  app.add_option("--data-dir", options.data_dir, "folder of the data files");
  app.add_option("--preset", preset,
                 "cs336: 4 layers of 1024 x 1024 with GELU, 128 rows of noise, loss mean(x^2)")
      ->check(CLI::IsMember({"cs336"}));
  app.add_option("--epochs", options.epochs,
                 "passes over the data (0: digits 50, fashion 10, noise 20)")
      ->check(non_negative);
  app.add_option("--steps", options.steps, "stop after so many steps (0: no limit)")
      ->check(non_negative);
  app.add_option("--batch", options.batch, "rows per step, of all ranks together")->check(positive);
  app.add_option("--lr", options.lr, "learning rate of AdamW")->check(positive);
  app.add_option("--seed", options.seed, "of initial weights and shuffles");
  app.add_option("--device", options.device, "what computes, and where all numbers lie")
      ->check(CLI::IsMember({"host", "cuda"}));
  app.add_option("--gemm", options.gemm,
                 "matrix products; auto: openblas or, on a GPU, cublas, if it is there")
      ->check(CLI::IsMember({"auto", "ref", "openblas", "cublas"}));
  app.add_option("--bucket-mb", options.bucket_mb, "largest gradient bucket, MiB")->check(positive);
  app.add_option("--first-bucket-mb", options.first_bucket_mb, "largest first bucket, MiB")
      ->check(positive);
  app.add_option("--overlap", overlap, "reduce gradients during the backward pass")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_flag("--verify", options.verify,
               "repeat every step serially on rank 0 and compare, bit for bit (slow)");
  app.add_option("--check-sync", options.check_sync,
                 "compare the ranks' parameters every so many steps (0: only at the end)")
      ->check(non_negative);
  app.add_option("--log-every", options.log_every, "a line every so many steps (0: every epoch)")
      ->check(non_negative);
  app.add_option("--min-accuracy", options.min_accuracy, "fail below this test accuracy")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--metrics", options.metrics, "append JSON lines to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_status = app.exit(error) == 0 ? 0 : kUsageError;
    return false;
  }
  options.overlap = overlap == "on";
  if (preset == "cs336") options.data = "noise";
  return true;
}

}  // namespace train
