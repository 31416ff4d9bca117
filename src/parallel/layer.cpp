#include "parallel/layer.hpp"

#include <utility>

#include "treering/parallel/rng.hpp"

#include "parallel/row_pieces.hpp"
#include "parallel/try.hpp"

namespace tr::par {

Layer::Layer(const StageContext& context, const LayerSpec& spec, const LayerNumbers& numbers,
             Layout arrival)
    : context_(context), spec_(spec), numbers_(numbers), arrival_(arrival) {
  const Layout base = context.base;
  need_ = raw_ = out_ = gradient_need_ = gradient_raw_ = base;
  if (spec.split == Split::kColumn) {
    need_ = Layout::kReplicated;
    raw_ = out_ = gradient_need_ = Layout::kColumns;
    gradient_raw_ = Layout::kPartial;
  } else if (spec.split == Split::kRow) {
    need_ = gradient_raw_ = Layout::kColumns;
    raw_ = Layout::kPartial;
    gradient_need_ = Layout::kReplicated;
  }
  kept_ = spec.has_norm || arrival == base ? base : need_;
}

Result<Tensor> Layer::make(std::int64_t rows, std::int64_t cols) const {
  return Tensor::make(context_.compute.memory(), Use::kActivations, rows, cols,
                      context_.options.type);
}

Result<View> Layer::Moving::finish() {
  if (!change) return x;
  TRY_ASSIGN(Spread moved, std::move(*change).finish());
  change.reset();
  arrived = std::move(moved.tensor);
  x = arrived.view();
  return x;
}

Result<Tensor> Layer::move(const View& x, Layout from, Layout to) const {
  TRY_ASSIGN(Relayout started,
             Relayout::start(context_.tp, context_.compute, x, from, to, Use::kActivations));
  TRY_ASSIGN(Spread moved, std::move(started).finish());
  return std::move(moved.tensor);
}

Result<Layer::Normalized> Layer::normalize(const View& x) const {
  Normalized out;
  if (!spec_.has_norm) return out;
  TRY_ASSIGN(out.y, make(x.rows, x.cols));
  TRY_ASSIGN(out.stats, Tensor::make(context_.compute.memory(), Use::kBuffers, x.rows, 2,
                                     accumulator_of(context_.options.type)));
  ParameterStore& store = context_.store;
  TRY(context_.compute.layer_norm(x, store.parameter(numbers_.gamma),
                                  store.parameter(numbers_.beta), out.y.view(), out.stats.view()));
  return out;
}

Result<Layer::Moving> Layer::start_input(const View& x, Tensor normalized) const {
  Moving input{.x = x, .change = std::nullopt, .arrived = {}};
  if (!spec_.has_norm && kept_ == need_) return input;
  Comm& tp = context_.tp;
  Compute& compute = context_.compute;
  TRY_ASSIGN(Relayout started,
             spec_.has_norm ? Relayout::start(tp, compute, {std::move(normalized), kept_}, need_,
                                              Use::kActivations)
                            : Relayout::start(tp, compute, x, kept_, need_, Use::kActivations));
  input.change = std::move(started);
  if (context_.options.overlap) return input;
  TRY(input.finish());
  return input;
}

Result<Tensor> Layer::gathered_product(const View& a, Transpose turned, Tensor& gathered) const {
  const View w = context_.store.parameter(numbers_.weight);
  TRY_ASSIGN(Tensor out,
             make(a.rows * context_.tp.size(), turned == Transpose::kYes ? w.rows : w.cols));
  const View c = out.view();
  TRY_ASSIGN(gathered, gather_rows(context_.tp, context_.compute, a, context_.options.tp_chunks,
                                   [&](const View& x, RowRange rows) {
                                     return context_.compute.multiply(
                                         Transpose::kNo, turned,
                                         x.row_range(rows.first, rows.count), w,
                                         c.row_range(rows.first, rows.count));
                                   }));
  return out;
}

Result<Tensor> Layer::scattered_product(const View& a, Transpose turned) const {
  const View w = context_.store.parameter(numbers_.weight);
  return scatter_rows(context_.tp, context_.compute, a.rows / context_.tp.size(),
                      turned == Transpose::kYes ? w.rows : w.cols, a.type,
                      context_.options.tp_chunks, [&](RowRange rows, const View& to) {
                        return context_.compute.multiply(
                            Transpose::kNo, turned, a.row_range(rows.first, rows.count), w, to);
                      });
}

Result<Relayout> Layer::product(const View& a, Layout from, Layout need, Transpose turned,
                                Layout raw, Layout to, Tensor& gathered) const {
  Comm& tp = context_.tp;
  Compute& compute = context_.compute;
  const auto then = [&](Result<Tensor> made, Layout layout) -> Result<Relayout> {
    if (!made) return made.error();
    return Relayout::start(tp, compute, {std::move(made).value(), layout}, to, Use::kActivations);
  };
  if (in_pieces() && from == Layout::kRows && need == Layout::kReplicated) {
    return then(gathered_product(a, turned, gathered), raw);
  }
  if (from != need) {
    TRY_ASSIGN(gathered, move(a, from, need));
  }
  const View input = from == need ? a : gathered.view();
  if (in_pieces() && raw == Layout::kPartial && to == Layout::kRows) {
    return then(scattered_product(input, turned), to);
  }
  const View w = context_.store.parameter(numbers_.weight);
  TRY_ASSIGN(Tensor out, make(input.rows, turned == Transpose::kYes ? w.rows : w.cols));
  TRY(compute.multiply(Transpose::kNo, turned, input, w, out.view()));
  return then(std::move(out), raw);
}

Result<Tensor> Layer::linear(const View& rows) const {
  const View x = unfolded(rows);
  TRY_ASSIGN(Normalized normalized, normalize(x));
  const View input = spec_.has_norm ? normalized.y.view() : x;
  Tensor gathered;
  TRY_ASSIGN(Relayout started, product(input, kept_, need_, Transpose::kNo, raw_, out_, gathered));
  TRY_ASSIGN(Spread z, std::move(started).finish());
  if (spec_.has_bias) {  // after partial sums were summed: once, not once a rank
    TRY(context_.compute.add_row(context_.store.parameter(numbers_.bias), z.tensor.view()));
  }
  fold(z.tensor);
  return std::move(z.tensor);
}

DropoutKey Layer::dropout_key(const MicroBatch& batch, const View& y) const {
  const int rank = context_.tp.rank();
  return {.seed = context_.options.seed,
          .stream = dropout_stream(numbers_.layer, batch.step),
          .first_row = batch.first_row + (out_ == Layout::kRows ? rank * y.rows : 0),
          .first_col = out_ == Layout::kColumns ? rank * y.cols : 0,
          .global_cols = spec_.output_width(),
          .probability = spec_.dropout};
}

Status Layer::activate(const MicroBatch& batch, const View& z, const View& y) const {
  Status ok = context_.compute.activate(spec_.activation, z, y);
  if (!ok || !batch.is_training || !has_dropout()) return ok;
  return context_.compute.dropout(dropout_key(batch, y), y, y);
}

Status Layer::activate_backward(const MicroBatch& batch, const View& z, const View& dy) const {
  if (has_dropout()) {
    TRY(context_.compute.dropout(dropout_key(batch, dy), dy, dy));
  }
  if (!has_activation()) return {};
  return context_.compute.activate_backward(spec_.activation, z, dy, dy);
}

Status Layer::add_bias_gradient(const View& dz) const {
  if (!spec_.has_bias) return {};
  TRY_ASSIGN(View gradient, context_.store.gradient(numbers_.bias));
  return context_.compute.sum_rows(dz, gradient, Update::kAdd);
}

Status Layer::add_weight_gradient(Moving& input, const View& dz) const {
  TRY_ASSIGN(View x, input.finish());
  TRY_ASSIGN(View gradient, context_.store.gradient(numbers_.weight));
  return context_.compute.multiply(Transpose::kYes, Transpose::kNo, x, dz, gradient, Update::kAdd);
}

Status Layer::weight_gradient(const View& rows, const View& gradient) const {
  const View x = unfolded(rows), dz = unfolded(gradient);
  TRY_ASSIGN(Normalized normalized, normalize(x));
  TRY_ASSIGN(Moving input, start_input(x, std::move(normalized.y)));
  return add_weight_gradient(input, dz);
}

Result<Tensor> Layer::norm_backward(const View& x, const View& stats, Tensor dy) const {
  TRY_ASSIGN(View dgamma, context_.store.gradient(numbers_.gamma));
  TRY_ASSIGN(View dbeta, context_.store.gradient(numbers_.beta));
  TRY(context_.compute.layer_norm_backward(x, context_.store.parameter(numbers_.gamma), stats,
                                           dy.view(), dy.view(), dgamma, dbeta, Update::kAdd));
  TRY_ASSIGN(Spread dx, relayout(context_.tp, context_.compute, {std::move(dy), kept_}, arrival_));
  return std::move(dx.tensor);
}

// dW does not wait for dx to move, nor dx's product for x: they go beside each other.
Result<Layer::Backward> Layer::backward(const View& rows, const View& gradient, bool wants_dx,
                                        bool later) const {
  const View x = unfolded(rows), dz = unfolded(gradient);
  Backward out;
  TRY(add_bias_gradient(dz));
  TRY_ASSIGN(Normalized normalized, normalize(x));
  Moving input, dx;
  if (!later) {
    TRY_ASSIGN(input, start_input(x, std::move(normalized.y)));
  }
  if (wants_dx) {
    TRY_ASSIGN(Relayout started, product(dz, out_, gradient_need_, Transpose::kYes, gradient_raw_,
                                         spec_.has_norm ? kept_ : arrival_, out.gathered));
    dx.change = std::move(started);
    if (!context_.options.overlap) {
      TRY(dx.finish());
    }
  } else if (out_ != gradient_need_) {
    TRY_ASSIGN(out.gathered, move(dz, out_, gradient_need_));
  }
  if (!later) {
    TRY(add_weight_gradient(input, out.gathered.is_empty() ? dz : out.gathered.view()));
  }
  if (!wants_dx) return out;
  TRY(dx.finish());
  if (!spec_.has_norm) {
    out.dx = std::move(dx.arrived);
    fold(out.dx);
    return out;
  }
  TRY_ASSIGN(out.dx, norm_backward(x, normalized.stats.view(), std::move(dx.arrived)));
  fold(out.dx);
  return out;
}

}  // namespace tr::par
