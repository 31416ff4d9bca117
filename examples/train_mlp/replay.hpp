// The proof that data-parallel training computes what serial training computes.
//
// One process goes through the same batches alone, on the same device. It keeps two promises apart:
// - Exact: the gradient of each rank's rows, computed here and added in rank order, must equal the
//   reduced gradient bit for bit, and so must the parameters after the optimizer. The all-reduce
//   must fold in rank order for that (TR_OPT_ORDERED).
// - Close: the gradient of the whole batch at once differs by rounding only, since floating-point
//   addition is not associative: relative error (2-norm) at most 2e-6. This is required of a GEMM
//   whose rows do not depend on each other. With OpenBLAS or cuBLAS the forward pass of a share
//   rounds otherwise than that of the whole batch, and a ReLU whose input is 1e-8 here and -1e-8
//   there switches a whole path of the gradient: the error is measured, but proves nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "treering/result.hpp"

#include "train_mlp/data.hpp"
#include "train_mlp/mlp.hpp"
#include "train_mlp/optimizer.hpp"

namespace train {

class SerialReplay {
 public:
  static constexpr double kTolerance = 2e-6;

  SerialReplay(const Net& net, compute::Backend& backend, const AdamWOptions& options, int ranks,
               int batch, std::span<const float> initial_parameters);

  // After a step of the ranks on `batch` (the global one); all in the host's memory. The error says
  // what differs first, and where.
  tr::Status step(const Table& batch, double normalizer, std::span<const float> gradients,
                  std::span<const float> parameters);

  int steps() const { return steps_; }
  double worst_error() const { return worst_error_; }  // of the whole-batch gradient, relative
  bool error_is_bounded() const { return error_is_bounded_; }

 private:
  std::vector<float> gradient(const Table& batch, Range rows, double normalizer);
  tr::Status compare(const char* what, std::span<const float> serial,
                     std::span<const float> parallel) const;

  const Net& net_;
  int ranks_;
  bool error_is_bounded_;
  int steps_ = 0;
  double worst_error_ = 0.0;
  Mlp mlp_;
  AdamW optimizer_;
  compute::Array<float> parameters_, gradients_;
};

}  // namespace train
