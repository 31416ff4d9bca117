// What rank 0 says about the training, in words and as JSON lines, and the measuring behind it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "treering/parallel/trace.hpp"
#include "treering/parallel/trainer.hpp"

namespace train {

// Steps since the last line; times are per step, on this rank.
struct Progress {
  int step = 0, total_steps = 0;
  int epoch = 0, epochs = 0;
  int steps = 0;  // that the line is about
  double loss = 0.0;
  std::optional<double> accuracy, test_accuracy;
  double gradient_norm = 0.0, lr = 0.0, loss_scale = 1.0;
  int skipped = 0;
  double step_ms = 0.0, forward_ms = 0.0, backward_ms = 0.0, communication_ms = 0.0;
  double exposed_ms = 0.0, bubble_ms = 0.0, optimizer_ms = 0.0;
  double overlap = 1.0;
  double samples_per_s = 0.0, gflops = 0.0, mfu = 0.0;
  double memory_mb = 0.0, peak_memory_mb = 0.0;
};

// Adds what a rank's trace says of `steps` steps; times in it are of the trace's clock.
void add_times(const tr::par::Trace& trace, int steps, Progress& progress);

// Can this file be written, or made? It is left as it was.
tr::Status can_write(const std::string& file);

class Report {
 public:
  // Appends JSON lines to `file`; empty: none.
  static tr::Result<Report> open(const std::string& file);
  void line(const Progress& p);
  // On a terminal: a bar that is written over.
  void bar(int step, int total);
  // If most lines said that communication took much of a step: what to do.
  void advise() const;
  // A JSON object, one line.
  void json(const std::string& object);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  void flush_json();

  std::unique_ptr<std::FILE, Close> json_;
  std::string file_;
  bool is_terminal_ = false;
  bool has_bar_ = false;
  double worst_exposed_ = 0.0;  // share of a step, over the lines but the first
  int lines_ = 0;
};

}  // namespace train
