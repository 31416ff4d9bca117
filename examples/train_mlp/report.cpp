#include "train_mlp/report.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstring>

namespace train {

tr::Result<Report> Report::open(const std::string& file) {
  Report report;
  if (file.empty()) return report;
  report.json_.reset(std::fopen(file.c_str(), "a"));
  if (!report.json_) {
    return tr::Error{TR_SYSTEM_ERROR, "cannot append to " + file + ": " + std::strerror(errno)};
  }
  return report;
}

void Report::progress(const Progress& p) {
  std::printf("%s %*d/%d  loss %.6f", p.unit, p.total > 99 ? 3 : 2, p.number, p.total, p.loss);
  if (p.train_accuracy) std::printf("  train %.4f", *p.train_accuracy);
  if (p.test_accuracy) std::printf("  test %.4f", *p.test_accuracy);
  std::printf("  %.0f samples/s  step %.2f ms: compute %.2f, exposed comm %.2f, optimizer %.2f",
              p.samples_per_s, p.step_ms, p.compute_ms, p.exposed_ms, p.optimizer_ms);
  if (const auto overlap = p.overlap()) {
    std::printf("; comm alone %.2f, overlap %.0f %%", p.alone_ms, 100.0 * *overlap);
  }
  std::printf("\n");
  std::fflush(stdout);

  if (!json_) return;
  std::fprintf(json_.get(), R"({"%s":%d,"step":%d,"loss":%.9g)", p.unit, p.number, p.step, p.loss);
  if (p.train_accuracy) std::fprintf(json_.get(), R"(,"train_accuracy":%.6f)", *p.train_accuracy);
  if (p.test_accuracy) std::fprintf(json_.get(), R"(,"test_accuracy":%.6f)", *p.test_accuracy);
  std::fprintf(json_.get(),
               R"(,"samples_per_s":%.1f,"step_ms":%.4f,"compute_ms":%.4f,"exposed_comm_ms":%.4f)"
               R"(,"optimizer_ms":%.4f,"comm_alone_ms":%.4f)",
               p.samples_per_s, p.step_ms, p.compute_ms, p.exposed_ms, p.optimizer_ms, p.alone_ms);
  if (const auto overlap = p.overlap()) std::fprintf(json_.get(), R"(,"overlap":%.4f)", *overlap);
  std::fprintf(json_.get(), "}\n");
  std::fflush(json_.get());
}

void Report::end(std::uint64_t hash, std::uint64_t sent_bytes_per_step, int steps) {
  std::printf("%d steps; parameters equal on all ranks, hash %016" PRIx64 "\n", steps, hash);
  if (!json_) return;
  std::fprintf(json_.get(),
               R"({"steps":%d,"parameters_hash":"%016)" PRIx64 R"(","sent_bytes_per_step":%)" PRIu64
               "}\n",
               steps, hash, sent_bytes_per_step);
}

}  // namespace train
