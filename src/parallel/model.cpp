#include "treering/parallel/model.hpp"

#include <cmath>

#include "treering/parallel/rng.hpp"

namespace tr::par {
namespace {

using Kind = ParameterSpec::Kind;

Layout weight_layout(Split split) {
  return split == Split::kColumn ? Layout::kColumns
         : split == Split::kRow  ? Layout::kRows
                                 : Layout::kReplicated;
}

Error wrong(int layer, const std::string& what) {
  return {TR_INVALID_ARGUMENT, "layer " + std::to_string(layer) + ": " + what};
}

std::string count_of(std::int64_t count, const char* what) {
  return std::to_string(count) + " " + what;
}

Status check_shape(int number, const LayerSpec& layer, const LayerSpec* previous) {
  if (layer.in < 1 || layer.out < 1) {
    return wrong(number, count_of(layer.in, "inputs and ") + count_of(layer.out, "outputs"));
  }
  if (previous != nullptr && previous->output_width() != layer.input_width()) {
    return wrong(number, count_of(layer.input_width(), "inputs, but the layer before it has ") +
                             count_of(previous->output_width(), "outputs"));
  }
  if (layer.positions < 1) {
    return wrong(number, count_of(layer.positions, "positions: there must be one at least"));
  }
  if (!(layer.dropout >= 0.0 && layer.dropout < 1.0)) {
    return wrong(number, "a dropout of " + std::to_string(layer.dropout) +
                             ": it must be at least 0 and less than 1");
  }
  return {};
}

Status check_split(int number, const LayerSpec& layer, const LayerSpec* previous, int tp) {
  if (layer.positions > 1 && layer.split != Split::kReplicate) {
    return wrong(number, "a layer that all positions share cannot be split");
  }
  if (layer.split == Split::kRow) {
    if (previous == nullptr || previous->split != Split::kColumn) {
      return wrong(number, "a row split needs its input split: by a column split before it");
    }
    if (layer.has_norm) {
      return wrong(number, "a norm needs whole rows, but a row split's input is split by columns");
    }
  }
  const bool is_row = layer.split == Split::kRow;
  const std::int64_t shared = is_row ? layer.in : layer.out;
  if (layer.split != Split::kReplicate && shared % tp != 0) {
    return wrong(number, std::to_string(tp) + " tensor-parallel ranks cannot share its " +
                             count_of(shared, is_row ? "inputs" : "outputs") +
                             " evenly: take a multiple of " + std::to_string(tp) +
                             ", or do not split it");
  }
  return {};
}

}  // namespace

std::string ParameterSpec::name() const {
  constexpr const char* kNames[] = {"weight", "bias", "gamma", "beta"};
  return "layer " + std::to_string(layer) + " " + kNames[static_cast<int>(kind)];
}

Model& Model::linear(std::int64_t in, std::int64_t out, Split split) {
  layers_.push_back({.in = in, .out = out, .split = split});
  return *this;
}

LayerSpec& Model::last(const char* call) {
  if (!layers_.empty()) return layers_.back();
  if (misplaced_.empty()) misplaced_ = call;
  return nobody_;
}

Model& Model::without_bias() {
  last("without_bias").has_bias = false;
  return *this;
}
Model& Model::norm() {
  last("norm").has_norm = true;
  return *this;
}
Model& Model::relu() {
  last("relu").activation = Activation::kRelu;
  return *this;
}
Model& Model::gelu() {
  last("gelu").activation = Activation::kGelu;
  return *this;
}
Model& Model::dropout(double probability) {
  last("dropout").dropout = probability;
  return *this;
}
Model& Model::shared(int positions) {
  last("shared").positions = positions;
  return *this;
}
Model& Model::sequence_parallel(bool on) {
  sequence_parallel_ = on;
  return *this;
}

std::vector<ParameterSpec> Model::parameters() const {
  std::vector<ParameterSpec> all;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const LayerSpec& layer = layers_[l];
    // What every rank has whole, it uses on its own rows alone in sequence parallelism.
    const auto add = [&](Kind kind, std::int64_t rows, std::int64_t cols, Layout layout) {
      all.push_back({.kind = kind,
                     .layer = static_cast<int>(l),
                     .number = static_cast<int>(all.size()),
                     .rows = rows,
                     .cols = cols,
                     .layout = layout,
                     .gradient_is_partial = sequence_parallel_ && layout == Layout::kReplicated});
    };
    if (layer.has_norm) {
      add(Kind::kGamma, 1, layer.in, Layout::kReplicated);
      add(Kind::kBeta, 1, layer.in, Layout::kReplicated);
    }
    add(Kind::kWeight, layer.in, layer.out, weight_layout(layer.split));
    if (layer.has_bias) {
      const bool is_cut = layer.split == Split::kColumn;
      add(Kind::kBias, 1, layer.out, is_cut ? Layout::kColumns : Layout::kReplicated);
    }
  }
  return all;
}

std::int64_t Model::num_parameters() const {
  std::int64_t sum = 0;
  for (const ParameterSpec& one : parameters()) sum += one.rows * one.cols;
  return sum;
}

std::string Model::to_string() const {
  if (layers_.empty()) return "no layers";
  std::string text = std::to_string(layers_.front().input_width());
  for (const LayerSpec& layer : layers_) text += "-" + std::to_string(layer.output_width());
  if (layers_.front().activation == Activation::kRelu) text += " relu";
  if (layers_.front().activation == Activation::kGelu) text += " gelu";
  return text + ", " + std::to_string(num_parameters()) + " parameters";
}

Status Model::check(int tp) const {
  if (!misplaced_.empty()) {
    return Error{TR_INVALID_ARGUMENT,
                 "model: " + misplaced_ + "() changes the last layer, and there was none yet"};
  }
  if (layers_.empty()) return Error{TR_INVALID_ARGUMENT, "model: it has no layers"};
  const LayerSpec* previous = nullptr;
  for (int l = 0; l < static_cast<int>(layers_.size()); ++l) {
    if (Status ok = check_shape(l, layers_[l], previous); !ok) return ok;
    if (Status ok = check_split(l, layers_[l], previous, tp); !ok) return ok;
    previous = &layers_[l];
  }
  return {};
}

std::vector<int> even_stages(int layers, int stages) {
  std::vector<int> counts;
  for (int s = 0; s < stages; ++s) counts.push_back(layers / stages + (s < layers % stages));
  return counts;
}

void initialize(const ParameterSpec& parameter, const LayerSpec& layer, std::uint64_t seed,
                int tp_rank, int tp_size, double* part) {
  const bool by_columns = parameter.layout == Layout::kColumns;
  const bool by_rows = parameter.layout == Layout::kRows;
  const std::int64_t rows = parameter.rows / (by_rows ? tp_size : 1);
  const std::int64_t cols = parameter.cols / (by_columns ? tp_size : 1);
  const std::int64_t first_row = by_rows ? tp_rank * rows : 0;
  const std::int64_t first_col = by_columns ? tp_rank * cols : 0;
  const std::uint64_t stream = parameter_stream(parameter.number);
  // Uniform in [-bound, bound) has a variance of bound^2 / 3. The fan-in is the whole layer's, not
  // this rank's share of it.
  const double variance =
      (layer.activation == Activation::kRelu ? 2.0 : 1.0) / static_cast<double>(layer.in);
  const double bound = std::sqrt(3.0 * variance);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      const std::int64_t place = (first_row + i) * parameter.cols + first_col + j;
      double value = parameter.kind == Kind::kGamma ? 1.0 : 0.0;
      if (parameter.kind == Kind::kWeight) {
        value = bound * random_symmetric(seed, stream, static_cast<std::uint64_t>(place));
      }
      part[i * cols + j] = value;
    }
  }
}

}  // namespace tr::par
