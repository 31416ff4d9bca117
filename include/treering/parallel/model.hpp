// A model as data: layers with shard specifications. Trained in any layout without writing a
// collective:
//
//   Model model(Loss::kCrossEntropy);
//   model.linear(784, 256, Split::kColumn).relu()
//        .linear(256, 128, Split::kRow).relu()
//        .linear(128, 10);
//
// Split says how tensor-parallel ranks share a layer's weights W (in x out), y = x W + b:
//   kReplicate  everyone has all of W and computes everything
//   kColumn     rank t has columns of W and b; needs x replicated, leaves y in kColumns
//   kRow        rank t has rows of W, all of b; needs x in kColumns, leaves partial sums of y, to
//               which b is added after they were summed
// kColumn after kColumn is the lecture form (gather between layers); kColumn then kRow is
// Megatron's pair. Between layers Relayout does what is needed; with sequence_parallel, what is
// replicated between a pair and the next lies in kRows instead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "treering/parallel/compute.hpp"
#include "treering/parallel/layout.hpp"

namespace tr::par {

enum class Split : std::uint8_t { kReplicate, kColumn, kRow };
enum class Loss : std::uint8_t {
  kCrossEntropy,  // of labels; normalizer = rows
  kMeanSquare,    // of the outputs themselves; normalizer = rows * outputs
};

// LayerNorm (of the input), linear, activation, dropout: in this order, each but linear optional.
struct LayerSpec {
  std::int64_t in = 0, out = 0;
  bool has_bias = true;
  bool has_norm = false;
  Activation activation = Activation::kNone;
  double dropout = 0.0;
  Split split = Split::kReplicate;
  // Applied to each of so many parts of a row, with the same weights: an embedding of a context.
  int positions = 1;

  std::int64_t input_width() const { return in * positions; }
  std::int64_t output_width() const { return out * positions; }
};

// One parameter matrix of the whole model, and which of it a rank has.
struct ParameterSpec {
  enum class Kind : std::uint8_t { kWeight, kBias, kGamma, kBeta };
  Kind kind = Kind::kWeight;
  int layer = 0;
  int number = 0;                       // in the model: its random stream
  std::int64_t rows = 0, cols = 0;      // global shape; 1 x n but for weights
  Layout layout = Layout::kReplicated;  // kColumns or kRows of the global shape, or replicated
  // Replicated, but each tensor-parallel rank's gradient is a partial sum of its rows (sequence
  // parallelism): to be summed over tp before the step.
  bool gradient_is_partial = false;
  std::string name() const;  // "layer 3 weight"
};

class Model {
 public:
  explicit Model(Loss loss) : loss_(loss) {}

  // Appends a layer; the others change the last one.
  Model& linear(std::int64_t in, std::int64_t out, Split split = Split::kReplicate);
  Model& without_bias();
  Model& norm();
  Model& relu();
  Model& gelu();
  Model& dropout(double probability);
  Model& shared(int positions);
  Model& sequence_parallel(bool on = true);

  Loss loss() const { return loss_; }
  const std::vector<LayerSpec>& layers() const { return layers_; }
  bool is_sequence_parallel() const { return sequence_parallel_; }
  std::vector<ParameterSpec> parameters() const;
  std::int64_t num_parameters() const;
  std::string to_string() const;  // "64-128-10 relu, 9610 parameters"

  // What cannot be trained with so many tensor-parallel ranks, named by layer: widths that do not
  // follow each other, a dimension that P does not divide, a row split whose input nobody split.
  Status check(int tp) const;

 private:
  // The last layer; without one, a place to write to, and check() says which call came too early.
  LayerSpec& last(const char* call);

  Loss loss_;
  bool sequence_parallel_ = false;
  std::vector<LayerSpec> layers_;
  LayerSpec nobody_;
  std::string misplaced_;
};

// Layers of stage s of p: contiguous, as even as can be, the earlier stages longer ("3/3/4" needs
// an explicit list).
std::vector<int> even_stages(int layers, int stages);  // how many layers each has

// Uniform with variance 2 / in before a ReLU, 1 / in otherwise; biases and beta 0, gamma 1. `part`
// is this rank's part of the parameter, contiguous host memory; the same numbers in every layout.
void initialize(const ParameterSpec& parameter, const LayerSpec& layer, std::uint64_t seed,
                int tp_rank, int tp_size, double* part);

}  // namespace tr::par
