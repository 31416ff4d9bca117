#include "train/report.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "must.hpp"

namespace train {

using tr::par::Interval;
using tr::par::Row;

void add_times(const tr::par::Trace& trace, int steps, Progress& p) {
  const auto per_step = [&](double us) { return us / 1000.0 / std::max(steps, 1); };
  for (const Interval& i : trace.intervals()) {
    if (i.row != Row::kCompute || i.name.empty()) continue;
    const double ms = per_step(i.end_us - i.begin_us);
    if (i.name[0] == 'F') p.forward_ms += ms;
    if (i.name[0] == 'B' || i.name[0] == 'W') p.backward_ms += ms;
  }
  const tr::par::Overlap all = tr::par::overlap_of(trace);
  p.communication_ms = per_step(all.total_us);
  p.exposed_ms = per_step(all.exposed_us);
  p.bubble_ms = per_step(tr::par::overlap_of(trace, {Row::kPp}).exposed_us);
  p.overlap = all.share();
}

tr::Result<Report> Report::open(const std::string& file) {
  Report report;
  report.is_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  if (file.empty()) return report;
  report.json_.reset(std::fopen(file.c_str(), "a"));
  if (!report.json_) {
    return tr::Error{TR_SYSTEM_ERROR,
                     "--metrics: cannot append to " + file + ": " + std::strerror(errno)};
  }
  report.file_ = file;
  return report;
}

tr::Status can_write(const std::string& file) {
  const bool is_new = ::access(file.c_str(), F_OK) != 0;
  std::FILE* const opened = std::fopen(file.c_str(), "a");
  if (opened == nullptr) {
    return tr::Error{TR_SYSTEM_ERROR, "cannot write " + file + ": " + std::strerror(errno)};
  }
  std::fclose(opened);
  if (is_new) ::unlink(file.c_str());
  return {};
}

// Metrics that are lost without a word are worse than none.
void Report::flush_json() {
  if (std::fflush(json_.get()) == 0 && std::ferror(json_.get()) == 0) return;
  example::must(tr::Status(tr::Error{
      TR_SYSTEM_ERROR, "--metrics: cannot write " + file_ + ": " + std::strerror(errno)}));
}

void Report::bar(int step, int total) {
  constexpr int kWidth = 40;
  if (!is_terminal_ || total < 1) return;
  const int full = static_cast<int>(static_cast<long long>(kWidth) * step / total);
  std::printf("\r[%.*s%*s] %d/%d", full, "########################################", kWidth - full,
              "", step, total);
  std::fflush(stdout);
  has_bar_ = true;
}

void Report::advise() const {
  constexpr double kMuch = 0.3;
  if (worst_exposed_ < kMuch) return;
  std::printf(
      "note: communication that nothing was computed beside took up to %.0f %% of a step: larger "
      "batches or micro-batches, --overlap on, --compress, or another layout (plan) help\n",
      100 * worst_exposed_);
}

void Report::line(const Progress& p) {
  if (lines_++ > 0)
    worst_exposed_ = std::max(worst_exposed_, (p.exposed_ms - p.bubble_ms) / p.step_ms);
  if (has_bar_) std::printf("\r\033[K");
  has_bar_ = false;
  std::printf("epoch %d/%d  step %d/%d  loss %.6f", p.epoch, p.epochs, p.step, p.total_steps,
              p.loss);
  if (p.accuracy) std::printf("  acc %.4f", *p.accuracy);
  if (p.test_accuracy) std::printf("  test %.4f", *p.test_accuracy);
  std::printf("  |g| %.3g  lr %.3g", p.gradient_norm, p.lr);
  if (p.loss_scale != 1.0) std::printf("  scale %g (%d skipped)", p.loss_scale, p.skipped);
  std::printf(
      "  step %.2f ms (fwd %.2f bwd %.2f comm %.2f exposed %.2f bubble %.2f opt %.2f)  %.0f "
      "samples/s  %.1f GF/s  MFU %.0f %%  overlap %.0f %%  mem %.1f/%.1f MB\n",
      p.step_ms, p.forward_ms, p.backward_ms, p.communication_ms, p.exposed_ms, p.bubble_ms,
      p.optimizer_ms, p.samples_per_s, p.gflops, 100 * p.mfu, 100 * p.overlap, p.memory_mb,
      p.peak_memory_mb);
  std::fflush(stdout);

  if (!json_) return;
  std::fprintf(json_.get(), R"({"epoch":%d,"step":%d,"loss":%.9g)", p.epoch, p.step, p.loss);
  if (p.accuracy) std::fprintf(json_.get(), R"(,"accuracy":%.6f)", *p.accuracy);
  if (p.test_accuracy) std::fprintf(json_.get(), R"(,"test_accuracy":%.6f)", *p.test_accuracy);
  std::fprintf(json_.get(),
               R"(,"gradient_norm":%.9g,"lr":%.9g,"loss_scale":%.9g,"skipped":%d,"step_ms":%.4f)"
               R"(,"forward_ms":%.4f,"backward_ms":%.4f,"communication_ms":%.4f)"
               R"(,"exposed_ms":%.4f,"bubble_ms":%.4f,"optimizer_ms":%.4f,"overlap":%.4f)"
               R"(,"samples_per_s":%.1f,"gflops":%.3f,"mfu":%.4f,"memory_mb":%.3f)"
               R"(,"peak_memory_mb":%.3f)"
               "}\n",
               p.gradient_norm, p.lr, p.loss_scale, p.skipped, p.step_ms, p.forward_ms,
               p.backward_ms, p.communication_ms, p.exposed_ms, p.bubble_ms, p.optimizer_ms,
               p.overlap, p.samples_per_s, p.gflops, p.mfu, p.memory_mb, p.peak_memory_mb);
  flush_json();
}

void Report::json(const std::string& object) {
  if (!json_) return;
  std::fprintf(json_.get(), "%s\n", object.c_str());
  flush_json();
}

}  // namespace train
