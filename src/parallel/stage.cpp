#include "treering/parallel/stage.hpp"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "parallel/layer.hpp"
#include "parallel/try.hpp"

namespace tr::par {
namespace {

// What the backward pass of one layer and micro-batch needs.
struct Kept {
  Tensor x;   // in the layer's kept() layout; empty if it is computed from the z before
  Tensor z;   // empty if nobody looks at it
  Tensor dz;  // between backward and weights, if they are split
};

struct Flight {
  MicroBatch batch;
  std::vector<Kept> layers;
  bool backward_is_done = false;
};

std::vector<LayerNumbers> numbers_of(const Model& model) {
  std::vector<LayerNumbers> numbers(model.layers().size());
  for (const ParameterSpec& one : model.parameters()) {
    LayerNumbers& of_layer = numbers[static_cast<std::size_t>(one.layer)];
    of_layer.layer = one.layer;
    switch (one.kind) {
      case ParameterSpec::Kind::kWeight:
        of_layer.weight = one.number;
        break;
      case ParameterSpec::Kind::kBias:
        of_layer.bias = one.number;
        break;
      case ParameterSpec::Kind::kGamma:
        of_layer.gamma = one.number;
        break;
      case ParameterSpec::Kind::kBeta:
        of_layer.beta = one.number;
        break;
    }
  }
  return numbers;
}

class LayerStage : public Stage {
 public:
  LayerStage(const Model& model, int first, int end, const StageContext& context)
      : context_(context),
        first_(first),
        is_first_(first == 0),
        is_last_(end == static_cast<int>(model.layers().size())) {
    const std::vector<LayerNumbers> numbers = numbers_of(model);
    Layout arrival = context_.base;
    for (auto l = static_cast<std::size_t>(first); l < static_cast<std::size_t>(end); ++l) {
      layers_.emplace_back(context_, model.layers()[l], numbers[l], arrival);
      arrival = layers_.back().out();
    }
  }

  Layout boundary() const override { return context_.base; }
  std::int64_t input_width() const override { return layers_.front().input_width(); }
  std::int64_t output_width() const override { return layers_.back().output_width(); }
  ActivationBytes activation_bytes(std::int64_t rows, bool split_weights) const override;
  int in_flight() const override { return static_cast<int>(flights_.size()); }

  Result<Spread> forward(const MicroBatch& batch, Spread x) override;
  Result<Spread> backward(int micro_batch, Spread dy, bool is_last, bool split_weights) override;
  Status weights(int micro_batch, bool is_last) override;

 private:
  int size() const { return static_cast<int>(layers_.size()); }
  Layout output_layout() const { return is_last_ ? Layout::kReplicated : context_.base; }
  Status check(const char* what, const Spread& given, Layout layout, std::int64_t rows,
               std::int64_t width) const;
  // The next micro-batch whose backward pass (or, `weights`, its second half) may run.
  Result<Flight*> next_flight(int micro_batch, bool weights);

  // All layers, of x in boundary() layout, in which the first layer keeps it. What `recompute` says
  // is left in `kept`, nothing if it is nullptr.
  Result<Spread> run(const MicroBatch& batch, Tensor x, Recompute recompute,
                     std::vector<Kept>* kept);
  Result<Tensor> run_layer(int l, const MicroBatch& batch, Tensor x, Recompute recompute,
                           std::vector<Kept>* kept);
  // Can layer l's input be computed again from the z before it, without communication?
  bool input_follows(int l) const;
  bool keeps_x(int l, Recompute recompute) const;
  bool keeps_z(int l, Recompute recompute) const;
  Result<Tensor> input_again(int l, const Flight& flight) const;
  std::int64_t bytes_of(Layout layout, std::int64_t rows, std::int64_t width) const;
  std::int64_t kept_bytes(int l, std::int64_t rows, Recompute recompute, bool split_weights) const;
  std::int64_t working_bytes(int l, std::int64_t rows, Recompute recompute) const;
  Result<Tensor> backward_layer(int l, Flight& flight, Tensor dy, bool split_weights);
  Result<Tensor> change(Tensor x, Layout from, Layout to) const {
    TRY_ASSIGN(Spread moved, relayout(context_.tp, context_.compute, {std::move(x), from}, to));
    return std::move(moved.tensor);
  }

  StageContext context_;
  int first_;  // layer of the model
  bool is_first_, is_last_;
  std::deque<Layer> layers_;  // never moved: they refer to context_
  std::deque<Flight> flights_;
};

Status LayerStage::check(const char* what, const Spread& given, Layout layout, std::int64_t rows,
                         std::int64_t width) const {
  TRY_ASSIGN(LocalShape shape, local_shape(layout, rows, width, context_.tp.size()));
  const View& view = given.tensor.view();
  if (given.layout == layout && view.rows == shape.rows && view.cols == shape.cols &&
      view.type == context_.options.type) {
    return {};
  }
  const auto text = [](std::int64_t r, std::int64_t c, DType type, Layout l) {
    return std::to_string(r) + " x " + std::to_string(c) + " " + name_of(type) + ", " + name_of(l);
  };
  return Error{TR_INVALID_ARGUMENT,
               std::string("stage: ") + what + " of " +
                   text(view.rows, view.cols, view.type, given.layout) + "; it must be " +
                   text(shape.rows, shape.cols, context_.options.type, layout)};
}

bool LayerStage::input_follows(int l) const {
  const Layer& before = layers_[l - 1];
  return layers_[l].kept() == before.out() && (before.has_activation() || before.has_dropout());
}

bool LayerStage::keeps_x(int l, Recompute recompute) const {
  return l == 0 || recompute == Recompute::kNone ||
         (recompute == Recompute::kActivation && !input_follows(l));
}

bool LayerStage::keeps_z(int l, Recompute recompute) const {
  if (recompute == Recompute::kFull) return false;
  return layers_[l].has_activation() || (l + 1 < size() && !keeps_x(l + 1, recompute));
}

std::int64_t LayerStage::bytes_of(Layout layout, std::int64_t rows, std::int64_t width) const {
  const std::int64_t ranks =
      layout == Layout::kColumns || layout == Layout::kRows ? context_.tp.size() : 1;
  return (rows * width + ranks - 1) / ranks *
         static_cast<std::int64_t>(size_of(context_.options.type));
}

std::int64_t LayerStage::kept_bytes(int l, std::int64_t rows, Recompute recompute,
                                    bool split_weights) const {
  const Layer& layer = layers_[l];
  const bool keeps_output = keeps_z(l, recompute) || split_weights;  // z, in whose place dz comes
  return (keeps_x(l, recompute) ? bytes_of(layer.kept(), rows, layer.input_width()) : 0) +
         (keeps_output ? bytes_of(layer.out(), rows, layer.output_width()) : 0);
}

// Of layer l's backward pass, beside what is kept: dy, dx, an input that is computed again, and
// where shards gather and scatter, the whole matrices on their way.
std::int64_t LayerStage::working_bytes(int l, std::int64_t rows, Recompute recompute) const {
  const Layer& layer = layers_[l];
  const std::int64_t whole_in = bytes_of(Layout::kReplicated, rows, layer.input_width());
  const std::int64_t whole_out = bytes_of(Layout::kReplicated, rows, layer.output_width());
  const bool wants_dx = l > 0 || !is_first_ || layer.needs_input_gradient();
  std::int64_t bytes = bytes_of(layer.out(), rows, layer.output_width());
  if (!keeps_x(l, recompute)) bytes += bytes_of(layer.kept(), rows, layer.input_width());
  if (context_.tp.size() == 1 || layer.kept() == Layout::kColumns) {
    if (wants_dx) bytes += bytes_of(layer.arrival(), rows, layer.input_width());
  } else {
    const bool is_packed = layer.arrival() == Layout::kColumns;
    bytes += (wants_dx ? whole_in : 0) + (is_packed ? whole_in : 0);
    if (layer.arrival() == Layout::kRows) bytes += whole_in;
  }
  if (layer.out() == Layout::kRows) bytes += whole_out;
  return bytes;
}

Stage::ActivationBytes LayerStage::activation_bytes(std::int64_t rows, bool split_weights) const {
  const Recompute recompute = context_.options.recompute;
  const bool again = recompute == Recompute::kFull;  // a backward pass then keeps all, for a while
  const Recompute there = again ? Recompute::kNone : recompute;
  ActivationBytes bytes;
  std::int64_t until = 0;
  for (int l = 0; l < size(); ++l) {
    bytes.kept += kept_bytes(l, rows, recompute, split_weights && !again);
    until += kept_bytes(l, rows, there, split_weights);
    bytes.working = std::max(bytes.working, until + working_bytes(l, rows, there));
  }
  const std::int64_t out = bytes_of(output_layout(), rows, output_width());
  bytes.working = std::max(bytes.working, until + (is_last_ ? 2 : 1) * out);
  if (!is_first_) bytes.message += bytes_of(boundary(), rows, input_width());
  if (!is_last_) bytes.message += out;
  return bytes;
}

Result<Tensor> LayerStage::run_layer(int l, const MicroBatch& batch, Tensor x, Recompute recompute,
                                     std::vector<Kept>* kept) {
  const Layer& layer = layers_[l];
  TRY_ASSIGN(Tensor z, layer.linear(x.view()));
  if (kept != nullptr && keeps_x(l, recompute)) (*kept)[l].x = std::move(x);
  if (kept == nullptr || !keeps_z(l, recompute)) {
    TRY(layer.activate(batch, z.view(), z.view()));
    return z;
  }
  const View& like = z.view();
  TRY_ASSIGN(Tensor y, Tensor::make(context_.compute.memory(), Use::kActivations, like.rows,
                                    like.cols, like.type));
  TRY(layer.activate(batch, like, y.view()));
  (*kept)[l].z = std::move(z);
  return y;
}

Result<Spread> LayerStage::run(const MicroBatch& batch, Tensor x, Recompute recompute,
                               std::vector<Kept>* kept) {
  if (kept != nullptr) kept->resize(layers_.size());
  for (int l = 0; l < size(); ++l) {
    TRY(context_.store.acquire(first_ + l));
    if (l + 1 < size()) TRY(context_.store.prefetch(first_ + l + 1));
    TRY_ASSIGN(x, change(std::move(x), layers_[l].arrival(), layers_[l].kept()));
    Result<Tensor> y = run_layer(l, batch, std::move(x), recompute, kept);
    context_.store.release(first_ + l);
    TRY_ASSIGN(x, std::move(y));
  }
  return Spread{std::move(x), layers_.back().out()};
}

Result<Spread> LayerStage::forward(const MicroBatch& batch, Spread x) {
  TRY(check("an input", x, boundary(), batch.rows, input_width()));
  Flight flight{.batch = batch, .layers = {}};
  TRY_ASSIGN(Spread y, run(batch, std::move(x.tensor), context_.options.recompute,
                           batch.is_training ? &flight.layers : nullptr));
  if (batch.is_training) flights_.push_back(std::move(flight));
  return relayout(context_.tp, context_.compute, std::move(y), output_layout());
}

Result<Flight*> LayerStage::next_flight(int micro_batch, bool weights) {
  const std::string what = std::string("stage: ") + (weights ? "weights" : "backward") +
                           " of micro-batch " + std::to_string(micro_batch);
  for (Flight& flight : flights_) {
    if (flight.backward_is_done != weights) continue;
    if (flight.batch.number == micro_batch) return &flight;
    return Error{TR_INVALID_ARGUMENT, what + ", but the next is " +
                                          std::to_string(flight.batch.number) +
                                          ": they end in the order in which they began"};
  }
  return Error{TR_INVALID_ARGUMENT, what + " without its " + (weights ? "backward" : "forward")};
}

Result<Tensor> LayerStage::input_again(int l, const Flight& flight) const {
  const View z = flight.layers[l - 1].z.view();
  TRY_ASSIGN(Tensor x,
             Tensor::make(context_.compute.memory(), Use::kActivations, z.rows, z.cols, z.type));
  TRY(layers_[l - 1].activate(flight.batch, z, x.view()));
  return x;
}

// dy is in the layer's out() layout, and dx in its arrival().
Result<Tensor> LayerStage::backward_layer(int l, Flight& flight, Tensor dy, bool split_weights) {
  const Layer& layer = layers_[l];
  Kept& kept = flight.layers[l];
  TRY(layer.activate_backward(flight.batch, kept.z.view(), dy.view()));
  if (kept.x.is_empty()) {
    TRY_ASSIGN(kept.x, input_again(l, flight));
  }
  const bool wants_dx = l > 0 || !is_first_ || layer.needs_input_gradient();
  TRY_ASSIGN(Layer::Backward done,
             layer.backward(kept.x.view(), dy.view(), wants_dx, split_weights));
  if (split_weights) {
    kept.dz = done.gathered.is_empty() ? std::move(dy) : std::move(done.gathered);
    kept.z = Tensor();
  } else {
    kept = Kept();
  }
  return std::move(done.dx);
}

Result<Spread> LayerStage::backward(int micro_batch, Spread dy, bool is_last, bool split_weights) {
  TRY_ASSIGN(Flight * flight, next_flight(micro_batch, false));
  if (!split_weights && flight != &flights_.front()) {
    return Error{TR_INVALID_ARGUMENT, "stage: backward of micro-batch " +
                                          std::to_string(micro_batch) + " before the weights of " +
                                          std::to_string(flights_.front().batch.number)};
  }
  TRY(check("a gradient", dy, output_layout(), flight->batch.rows, output_width()));
  if (context_.options.recompute == Recompute::kFull) {
    Tensor input = std::move(flight->layers.front().x);
    TRY(run(flight->batch, std::move(input), Recompute::kNone, &flight->layers));
  }
  TRY_ASSIGN(Tensor d, change(std::move(dy.tensor), dy.layout, layers_.back().out()));
  for (int l = size() - 1; l >= 0; --l) {
    TRY(context_.store.acquire(first_ + l));
    if (l > 0) TRY(context_.store.prefetch(first_ + l - 1));
    Result<Tensor> dx = backward_layer(l, *flight, std::move(d), split_weights);
    context_.store.release(first_ + l);
    TRY_ASSIGN(d, std::move(dx));
    if (is_last && !split_weights) TRY(context_.store.ready(first_ + l));
  }
  flight->backward_is_done = true;
  if (!split_weights) flights_.pop_front();
  if (is_first_) return Spread{Tensor(), boundary()};
  return Spread{std::move(d), boundary()};
}

Status LayerStage::weights(int micro_batch, bool is_last) {
  TRY_ASSIGN(Flight * flight, next_flight(micro_batch, true));
  for (int l = size() - 1; l >= 0; --l) {
    Kept& kept = flight->layers[l];
    // A norm's output is computed again, with its parameters.
    TRY(context_.store.acquire(first_ + l));
    Status done = layers_[l].weight_gradient(kept.x.view(), kept.dz.view());
    context_.store.release(first_ + l);
    TRY(done);
    kept = Kept();
    if (is_last) TRY(context_.store.ready(first_ + l));
  }
  flights_.pop_front();
  return {};
}

}  // namespace

Result<std::unique_ptr<Stage>> Stage::create(const Model& model, int first, int end, Comm& tp,
                                             Compute& compute, ParameterStore& parameters,
                                             const StageOptions& options) {
  TRY(model.check(tp.size()));
  const auto layers = static_cast<int>(model.layers().size());
  if (first < 0 || first >= end || end > layers) {
    return Error{TR_INVALID_ARGUMENT, "stage: layers " + std::to_string(first) + " to " +
                                          std::to_string(end) + " of " + std::to_string(layers)};
  }
  if (options.tp_chunks < 1) {
    return Error{TR_INVALID_ARGUMENT,
                 "stage: tp_chunks is " + std::to_string(options.tp_chunks) + ": at least 1"};
  }
  const Layout base = model.is_sequence_parallel() ? Layout::kRows : Layout::kReplicated;
  return std::unique_ptr<Stage>(std::make_unique<LayerStage>(
      model, first, end, StageContext{tp, compute, parameters, options, base}));
}

}  // namespace tr::par
