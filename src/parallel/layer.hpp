// Layer: the passes of one layer of a stage, and the layouts between which it moves its input and
// output. `base` is the layout between layers of what is not split by columns: replicated, or by
// rows in sequence parallelism.
//
//   split        input needs   product leaves   output          gradient: needs   product leaves
//   kReplicate   base          base             base            base              base
//   kColumn      replicated    columns          columns         columns           partial
//   kRow         columns       partial          base            replicated        columns
//
// The input arrives as the layer before left it. It is kept for the backward pass in base, where it
// arrives so or a norm needs it so, else as the product needs it. What of it must be gathered is
// gathered again for dW: the shard is what is kept.
#pragma once

#include <cstdint>
#include <optional>

#include "treering/parallel/stage.hpp"

namespace tr::par {

// What all layers of a stage share.
struct StageContext {
  Comm& tp;
  Compute& compute;
  ParameterStore& store;
  StageOptions options;
  Layout base = Layout::kReplicated;
};

// A layer's number in the model, and those of its parameters; -1: it has none.
struct LayerNumbers {
  int layer = 0;
  int weight = -1, bias = -1, gamma = -1, beta = -1;
};

class Layer {
 public:
  Layer(const StageContext& context, const LayerSpec& spec, const LayerNumbers& numbers,
        Layout arrival);

  Layout arrival() const { return arrival_; }
  Layout kept() const { return kept_; }
  Layout out() const { return out_; }
  std::int64_t input_width() const { return spec_.input_width(); }
  std::int64_t output_width() const { return spec_.output_width(); }
  // Is the output other than z?
  bool has_activation() const { return spec_.activation != Activation::kNone; }
  bool has_dropout() const { return spec_.dropout > 0.0; }
  bool needs_input_gradient() const { return spec_.has_norm; }

  // z of x, which is in kept() layout.
  Result<Tensor> linear(const View& rows) const;
  // y = act(z), with dropout in training; y may be z.
  Status activate(const MicroBatch& batch, const View& z, const View& y) const;
  // dy becomes dz. z is looked at if there is an activation.
  Status activate_backward(const MicroBatch& batch, const View& z, const View& dy) const;

  struct Backward {
    Tensor dx;        // in arrival() layout; empty if it was not asked for
    Tensor gathered;  // dz as dW needs it; empty: as it was given
  };
  // Gradients of everything but, with `later`, the weights.
  Result<Backward> backward(const View& rows, const View& gradient, bool wants_dx,
                            bool later) const;
  Status weight_gradient(const View& rows, const View& gradient) const;

 private:
  struct Normalized {
    Tensor y, stats;
  };
  // A matrix that may still be on its way; without a change, x itself.
  struct Moving {
    View x;
    std::optional<Relayout> change;
    Tensor arrived;
    Result<View> finish();
  };

  // A row for each position; what comes of them is folded again.
  View unfolded(const View& x) const {
    return {x.data, x.rows * spec_.positions, x.cols / spec_.positions,
            spec_.positions > 1 ? x.cols / spec_.positions : x.stride, x.type};
  }
  void fold(Tensor& x) const {
    if (spec_.positions == 1 || x.is_empty()) return;
    x.reshape(x.view().rows / spec_.positions, x.view().cols * spec_.positions);
  }

  Result<Normalized> normalize(const View& x) const;
  // The input as the product needs it.
  Result<Moving> start_input(const View& x, Tensor normalized) const;
  Status add_bias_gradient(const View& dz) const;
  Status add_weight_gradient(Moving& input, const View& dz) const;
  // a op(W), of a as `need` says, and its way from layout `raw` to `to`. `gathered` gets what a
  // became, if it had to change.
  Result<Relayout> product(const View& a, Layout from, Layout need, Transpose turned, Layout raw,
                           Layout to, Tensor& gathered) const;
  Result<Tensor> gathered_product(const View& a, Transpose turned, Tensor& gathered) const;
  Result<Tensor> scattered_product(const View& a, Transpose turned) const;
  Result<Tensor> norm_backward(const View& x, const View& stats, Tensor dy) const;
  DropoutKey dropout_key(const MicroBatch& batch, const View& y) const;
  Result<Tensor> move(const View& x, Layout from, Layout to) const;
  Result<Tensor> make(std::int64_t rows, std::int64_t cols) const;
  bool in_pieces() const { return context_.options.tp_chunks > 1 && context_.tp.size() > 1; }

  const StageContext& context_;
  LayerSpec spec_;
  LayerNumbers numbers_;
  Layout arrival_, need_, kept_, raw_, out_;  // of the input, and of the output
  Layout gradient_need_, gradient_raw_;
};

}  // namespace tr::par
