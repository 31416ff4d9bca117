// What rank 0 says about the training, in words and as JSON lines.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "treering/result.hpp"

namespace train {

struct Progress {
  const char* unit = "epoch";  // what `number` of `total` counts
  int number = 0, total = 0;
  int step = 0;
  // Since the last report; times are per step.
  double loss = 0.0;  // mean over the samples
  std::optional<double> train_accuracy, test_accuracy;
  double samples_per_s = 0.0;
  double step_ms = 0.0, compute_ms = 0.0, optimizer_ms = 0.0;
  double exposed_ms = 0.0;  // waiting for gradients
  double alone_ms = 0.0;    // the same all-reduces with nothing beside them; 0: one rank
  // The part of the communication that the backward pass hid.
  std::optional<double> overlap() const {
    if (alone_ms <= 0.0) return {};
    return exposed_ms >= alone_ms ? 0.0 : 1.0 - exposed_ms / alone_ms;
  }
};

class Report {
 public:
  // Appends JSON lines to `file`; empty: none.
  static tr::Result<Report> open(const std::string& file);
  void progress(const Progress& p);
  void end(std::uint64_t hash, std::uint64_t sent_bytes_per_step, int steps);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::unique_ptr<std::FILE, Close> json_;
};

}  // namespace train
