// What is trained: data and the model that fits them, as the options say.
#pragma once

#include <string>
#include <vector>

#include "treering/parallel/model.hpp"

#include "train/data.hpp"
#include "train/options.hpp"

namespace train {

struct Task {
  Dataset data;
  tr::par::Model model;
  int epochs;
};

tr::Result<Task> make_task(const Options& options);

// A sentence about the layers that every tensor-parallel rank has all of; empty: there are none.
std::string layers_not_split(const tr::par::Model& model, int tp);

// Layers of these widths. How tensor-parallel ranks share them: gather, all by columns; megatron,
// pairs by columns and by rows, and what is left over, or too narrow to be shared, by nobody.
struct LayerStyle {
  std::string activation = "relu";
  bool norm = false;
  double dropout = 0.0;
  bool has_bias = true;
  bool activate_last = false;
};
void add_layers(tr::par::Model& model, const std::vector<int>& widths, const LayerStyle& style,
                const std::string& tp_mode, int tp);

}  // namespace train
