#include "train/task.hpp"

namespace train {
namespace {

using tr::par::Loss;
using tr::par::Model;
using tr::par::Split;

std::string or_default(const std::string& path, const char* otherwise) {
  return path.empty() ? otherwise : path;
}

struct Source {
  Dataset data;
  std::vector<int> hidden;
  int outputs;
  int epochs;
};

tr::Result<Source> load(const Options& o) {
  const auto with = [](tr::Result<Dataset> data, std::vector<int> hidden, int outputs,
                       int epochs) -> tr::Result<Source> {
    if (!data) return data.error();
    return Source{std::move(data).value(), std::move(hidden), outputs, epochs};
  };
  if (o.data == "fashion") {
    return with(load_fashion(or_default(o.data_path, "/usr/share/datasets/fashion-mnist")),
                {256, 128}, 10, 10);
  }
  if (o.data == "digits") {
    return with(load_digits(or_default(o.data_path, TRAIN_DATA_DIR) + "/digits.csv.gz"), {128, 128},
                10, 50);
  }
  if (o.data == "bytes") {
    if (o.data_path.empty()) {
      return tr::Error{TR_INVALID_ARGUMENT, "--data bytes needs --data-path FILE"};
    }
    constexpr std::size_t kTrainBytes = 1 << 20, kTestBytes = 64 << 10;
    return with(load_bytes(o.data_path, kTrainBytes, kTestBytes), {256, 256}, Bytes::kValues, 2);
  }
  constexpr int kFeatures = 1024;
  return Source{o.backend == "count" ? outline(o.batch, kFeatures)
                                     : make_noise(o.batch, kFeatures, o.trainer.seed),
                {1024, 1024, 1024},
                1024,
                o.steps > 0 ? o.steps : 20};
}

}  // namespace

void add_layers(Model& model, const std::vector<int>& widths, const LayerStyle& style,
                const std::string& tp_mode, int tp) {
  const std::size_t layers = widths.size() - 1;
  const auto split_of = [&](std::size_t l) {
    const bool divides = widths[l + 1] % tp == 0;
    if (tp_mode == "gather") return divides ? Split::kColumn : Split::kReplicate;
    if (tp_mode != "megatron") return Split::kReplicate;
    const std::size_t pair = l / 2 * 2;  // its first layer
    const bool is_whole = pair + 1 < layers && widths[pair + 1] % tp == 0;
    if (!is_whole) return Split::kReplicate;
    return l == pair ? Split::kColumn : Split::kRow;
  };
  for (std::size_t l = 0; l < layers; ++l) {
    const bool is_last = l + 1 == layers;
    model.linear(widths[l], widths[l + 1], split_of(l));
    if (!style.has_bias) model.without_bias();
    if (style.norm && l > 0 && split_of(l) != Split::kRow) model.norm();
    if (is_last && !style.activate_last) continue;
    if (style.activation == "relu") model.relu();
    if (style.activation == "gelu") model.gelu();
    if (style.dropout > 0 && !is_last) model.dropout(style.dropout);
  }
}

std::string layers_not_split(const Model& model, int tp) {
  if (tp == 1) return {};
  std::string whole;
  std::size_t count = 0;
  for (std::size_t l = 0; l < model.layers().size(); ++l) {
    const tr::par::LayerSpec& layer = model.layers()[l];
    if (layer.split != Split::kReplicate) continue;
    ++count;
    whole += (whole.empty() ? "layer " : ", layer ") + std::to_string(l) + " (" +
             std::to_string(layer.in) + "x" + std::to_string(layer.out) + ")";
  }
  if (count == 0) return {};
  const std::string by = "--tp " + std::to_string(tp);
  if (count == model.layers().size()) {
    return "warning: " + by + " splits no layer, so all its ranks do the same work: " + whole +
           "; take --hidden with widths that " + std::to_string(tp) +
           " divides, and --tp-mode gather or megatron";
  }
  return by + " leaves whole on every rank: " + whole;
}

tr::Result<Task> make_task(const Options& o) {
  tr::Result<Source> loaded = load(o);
  if (!loaded) return loaded.error();
  Source& source = loaded.value();
  const bool is_noise = o.data == "noise";
  Model model(is_noise ? Loss::kMeanSquare : Loss::kCrossEntropy);
  model.sequence_parallel(o.sequence_parallel);
  LayerStyle style{is_noise && o.activation == "relu" ? "gelu" : o.activation, o.norm, o.dropout,
                   !is_noise, is_noise};
  std::vector<int> widths = {static_cast<int>(source.data.train->features())};
  if (o.data == "bytes") {
    // One table for all places of the context: 256 values become 16 numbers each.
    constexpr int kEmbedding = 16;
    model.linear(Bytes::kValues, kEmbedding).without_bias().shared(Bytes::kContext);
    widths = {Bytes::kContext * kEmbedding};
  }
  const std::vector<int>& hidden = o.hidden.empty() ? source.hidden : o.hidden;
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(source.outputs);
  add_layers(model, widths, style, o.tp_mode, o.trainer.mesh.tp);
  return Task{std::move(source.data), std::move(model), o.epochs > 0 ? o.epochs : source.epochs};
}

}  // namespace train
