#include "treering/parallel/plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>

#include "treering/parallel/schedule.hpp"

#include "parallel/try.hpp"

namespace tr::par {
namespace {

Error no_plan(std::string text) { return {TR_INVALID_ARGUMENT, std::move(text)}; }

Status check_layout(const Workload& workload, const Cluster& cluster, const LayoutChoice& layout) {
  const ModelShape& model = workload.model;
  if (model.layers < 1 || model.hidden < 1 || model.heads < 1 || model.sequence < 1 ||
      !(model.parameters > 0.0) || workload.batch < 1) {
    return no_plan("layers, widths, heads, sequence, parameters and batch are at least 1");
  }
  for (const double one : {cluster.peak_flops, cluster.efficiency, cluster.intra_bytes_per_s,
                           cluster.inter_bytes_per_s, cluster.memory_bytes}) {
    if (!(one > 0.0)) return no_plan("a cluster's speeds and memory are more than 0");
  }
  if (cluster.ranks < 1 || cluster.ranks_per_node < 1) {
    return no_plan("a cluster has ranks, and a node has some");
  }
  for (const int one : {layout.dp, layout.pp, layout.tp, layout.stages_per_rank}) {
    if (one < 1) return no_plan("dp, pp, tp and stages a rank are at least 1");
  }
  if (layout.zero < 0 || layout.zero > 3) return no_plan("zero is 0, 1, 2 or 3");
  const std::int64_t product = std::int64_t{layout.dp} * layout.pp * layout.tp;
  if (product != cluster.ranks) {
    return no_plan("dp " + std::to_string(layout.dp) + " x pp " + std::to_string(layout.pp) +
                   " x tp " + std::to_string(layout.tp) + " makes " + std::to_string(product) +
                   " ranks, but there are " + std::to_string(cluster.ranks));
  }
  const int stages = layout.pp * layout.stages_per_rank;
  if (stages > model.layers) {
    return no_plan(std::to_string(model.layers) + " layers do not make " + std::to_string(stages) +
                   " stages");
  }
  if (model.is_transformer && model.heads % layout.tp != 0) {
    return no_plan("tp " + std::to_string(layout.tp) + " does not divide " +
                   std::to_string(model.heads) + " heads");
  }
  if (model.hidden % layout.tp != 0) {
    return no_plan("tp " + std::to_string(layout.tp) + " does not divide a width of " +
                   std::to_string(model.hidden));
  }
  return {};
}

// Of the rank that has most. A group of neighbours every `stride` ranks apart.
double bandwidth(const Cluster& cluster, int ranks, int stride) {
  const bool is_inside = std::int64_t{ranks} * stride <= cluster.ranks_per_node;
  return is_inside ? cluster.intra_bytes_per_s : cluster.inter_bytes_per_s;
}

// An all-reduce's share of a vector that a rank sends is twice this.
double ring_share(int ranks) { return (ranks - 1.0) / ranks; }

// The most layers that a rank has.
double layers_of_rank(const ModelShape& model, int pp) { return (model.layers + pp - 1) / pp; }

// ZeRO-3 gathers forward and backward of every micro-batch, ZeRO-1 and 2 once after the step.
double dp_bytes(const Precision& precision, const LayoutChoice& layout, double parameters,
                int micro_batches) {
  const double once = ring_share(layout.dp) * parameters;
  if (layout.zero == 0) return 2 * once * precision.gradient;
  const int gathers = layout.zero == 3 ? 2 * micro_batches : 1;
  return once * (precision.gradient + gathers * precision.parameter);
}

// Of a step's rows; the first layer of all needs no gradient of its input.
double tp_bytes(const ModelShape& model, const Precision& precision, const LayoutChoice& layout,
                double rows) {
  const double once =
      ring_share(layout.tp) * rows * static_cast<double>(model.hidden) * precision.activation;
  const double layers = layers_of_rank(model, layout.pp);
  if (model.is_transformer) return 2 * once * 4 * layers;  // attention and MLP, there and back
  const int unneeded = layout.pp == 1;
  if (!layout.is_megatron) return once * (2 * layers - unneeded);
  return 2 * once * (2 * (layers / 2) - unneeded);
}

double exposed(double communication_s, double beside_s) {
  return std::max(0.0, communication_s - beside_s);
}

}  // namespace

ModelShape ModelShape::mlp(int layers, std::int64_t hidden) {
  ModelShape shape;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.parameters = static_cast<double>(layers) * static_cast<double>(hidden * hidden);
  return shape;
}

ModelShape ModelShape::transformer(int layers, std::int64_t hidden, int heads,
                                   std::int64_t sequence, double parameters) {
  ModelShape shape{true, layers, hidden, heads, sequence, parameters};
  const double width = static_cast<double>(hidden);
  if (parameters == 0.0) shape.parameters = 12.0 * layers * width * width;
  return shape;
}

double state_bytes(const Precision& precision, int zero, int replicas) {
  const auto part = [&](int from_stage, int bytes) {
    return static_cast<double>(bytes) / (zero >= from_stage ? replicas : 1);
  };
  return part(3, precision.parameter) + part(2, precision.gradient) +
         part(1, precision.master + precision.moments);
}

double activation_bytes(const ModelShape& model, std::int64_t micro_batch,
                        const Precision& precision, const LayoutChoice& layout) {
  const double hidden = static_cast<double>(model.hidden), tp = layout.tp;
  const double row = static_cast<double>(micro_batch * model.sequence) * hidden * model.layers;
  const double element = precision.activation;
  const double kept_input = layout.is_sequence_parallel ? 1.0 / tp : 1.0;
  if (layout.recompute == Recompute::kFull) {
    return row * element * kept_input / (model.is_transformer ? 1 : model.layers);
  }
  if (!model.is_transformer) {
    const double before = 1.0 / tp;  // the activation
    // Inputs that were gathered do not follow from what is before an activation. Of a pair one
    // layer's is split, and the other's lies as its inputs do.
    const bool keeps_inputs = layout.recompute == Recompute::kNone || !layout.is_megatron;
    return row * element * (kept_input + before) / (keeps_inputs ? 1 : 2);
  }
  // The formula is for elements of two bytes. 10 of its 34 lie between the pairs of tensor
  // parallelism, where only sequence parallelism splits them.
  const double scores = 5.0 * model.heads * static_cast<double>(model.sequence) / hidden;
  const double attention = layout.recompute == Recompute::kNone ? scores : 0.0;
  return row * element / 2 * (10.0 * kept_input + (24.0 + attention) / tp);
}

double peak_activation_bytes(const ModelShape& model, std::int64_t micro_batch,
                             const Precision& precision, const LayoutChoice& layout,
                             double in_flight) {
  const double stage_share =
      layers_of_rank(model, layout.pp) / model.layers / layout.stages_per_rank;
  const double kept = activation_bytes(model, micro_batch, precision, layout);
  if (model.is_transformer || layout.recompute != Recompute::kFull) {
    return kept * stage_share * in_flight;
  }
  // One micro-batch at a time has everything again, the others a stage's input.
  LayoutChoice whole = layout;
  whole.recompute = Recompute::kNone;
  return activation_bytes(model, micro_batch, precision, whole) * stage_share +
         kept * (in_flight - 1);
}

double kept_micro_batches(const LayoutChoice& layout, int micro_batches) {
  const double p = layout.pp, v = layout.stages_per_rank, m = micro_batches;
  if (layout.schedule == "naive") return 1.0;
  if (layout.schedule == "gpipe") return m;
  if (layout.schedule != "interleaved" || v == 1.0) return std::min(p, m);
  return std::min(2 * (p - 1) + (v - 1) * p + 1, m * v) / v;
}

Result<int> accumulation(std::int64_t batch, std::int64_t micro_batch, int replicas) {
  if (batch < 1 || micro_batch < 1 || replicas < 1 || batch % (micro_batch * replicas) != 0) {
    return no_plan("a batch of " + std::to_string(batch) + " is no multiple of micro-batch " +
                   std::to_string(micro_batch) + " x dp " + std::to_string(replicas));
  }
  return static_cast<int>(batch / (micro_batch * replicas));
}

double mfu(double parameters, double rows_per_s, int ranks, double peak_flops) {
  return 6.0 * parameters * rows_per_s / (ranks * peak_flops);
}

double dp_ratio(int replicas, int gradient_bytes, double rows, double flops_per_byte) {
  return ring_share(replicas) * gradient_bytes / (2 * rows) * flops_per_byte;
}
double tp_ratio(int ranks, int activation_bytes, double inner, double flops_per_byte) {
  return (ranks - 1.0) * activation_bytes / (2 * inner) * flops_per_byte;
}
double pp_ratio(int activation_bytes, double layers, double hidden, double flops_per_byte) {
  return activation_bytes / (2 * layers * hidden) * flops_per_byte;
}
double zero3_ratio(int replicas, int parameter_bytes, double rows, double flops_per_byte) {
  return ring_share(replicas) * parameter_bytes / (2 * rows) * flops_per_byte;
}

Result<Plan> make_plan(const Workload& workload, const Cluster& cluster,
                       const LayoutChoice& layout) {
  TRY(check_layout(workload, cluster, layout));
  const ModelShape& model = workload.model;
  const Precision& precision = workload.precision;
  Plan plan;
  plan.layout = layout;
  TRY_ASSIGN(plan.micro_batches, accumulation(workload.batch, layout.micro_batch, layout.dp));
  const int m = plan.micro_batches;
  TRY(make_schedule(layout.schedule, layout.pp, m, layout.stages_per_rank));

  // The rank with most layers.
  const double layer_share = layers_of_rank(model, layout.pp) / model.layers;
  const double mine = model.parameters * layer_share / layout.tp;
  const auto split_from = [&](int stage) { return layout.zero >= stage ? layout.dp : 1; };
  plan.memory.parameters = mine * precision.parameter / split_from(3);
  // Sums over several micro-batches are whole until they are reduced.
  plan.memory.gradients = mine * precision.gradient / (m == 1 ? split_from(2) : 1);
  plan.memory.optimizer = mine * (precision.master + precision.moments) / split_from(1);
  plan.memory.activations =
      peak_activation_bytes(model, layout.micro_batch, precision, layout,
                            kept_micro_batches(layout, m) * layout.stages_per_rank);
  plan.fits = plan.memory.total() <= cluster.memory_bytes;

  const double rows = static_cast<double>(workload.batch / layout.dp * model.sequence);
  plan.sent.dp = dp_bytes(precision, layout, mine, m);
  plan.sent.tp = tp_bytes(model, precision, layout, rows);
  if (layout.pp > 1) {
    plan.sent.pp =
        rows * static_cast<double>(model.hidden) * precision.activation * layout.stages_per_rank;
  }

  plan.flops = 6.0 * mine * rows;
  const double again = layout.recompute == Recompute::kFull ? 8.0 / 6.0 : 1.0;
  plan.compute_s = plan.flops * again / (cluster.peak_flops * cluster.efficiency);
  plan.tp_s = plan.sent.tp / bandwidth(cluster, layout.tp, 1);
  plan.pp_s = exposed(plan.sent.pp / bandwidth(cluster, layout.pp, layout.tp), plan.compute_s);
  // Gradients go beside the last backward pass, ZeRO-3's parameters beside all computation.
  const double beside_s = layout.zero == 3 ? plan.compute_s : plan.compute_s * 2.0 / 3.0 / m;
  plan.dp_s =
      exposed(plan.sent.dp / bandwidth(cluster, layout.dp, layout.tp * layout.pp), beside_s);
  plan.bubble =
      layout.pp == 1 ? 0.0 : bubble_formula(layout.schedule, layout.pp, m, layout.stages_per_rank);
  plan.bubble_s = (plan.compute_s + plan.tp_s) * plan.bubble / (1.0 - plan.bubble);
  const double all_rows = static_cast<double>(workload.batch * model.sequence);
  plan.rows_per_s = all_rows / plan.step_s();
  plan.rows_are_tokens = model.is_transformer;
  plan.mfu = mfu(model.parameters, plan.rows_per_s, cluster.ranks, cluster.peak_flops);
  return plan;
}

std::string to_string(const LayoutChoice& layout) {
  std::string text = "dp " + std::to_string(layout.dp) + " x pp " + std::to_string(layout.pp) +
                     " x tp " + std::to_string(layout.tp);
  if (layout.zero > 0) text += ", ZeRO-" + std::to_string(layout.zero);
  if (layout.pp > 1) text += ", " + layout.schedule;
  if (layout.recompute != Recompute::kNone) text += ", recomputing";
  return text + ", micro-batch " + std::to_string(layout.micro_batch);
}

// Three digits at least, of which none is lost.
std::string short_number(double value, const std::string& unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  int thousands = 0;
  for (; value >= 999.5 && thousands < 6; ++thousands) value /= 1000.0;
  char text[48];
  const bool is_whole = thousands == 0 && value == std::floor(value);
  const int decimals = is_whole || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  const std::string prefixed = kPrefixes[thousands] + unit;
  return prefixed.empty() ? text : std::string(text) + " " + prefixed;
}

std::string to_string(const Plan& plan) {
  const auto bytes = [](double value) { return short_number(value, "B"); };
  const auto time = [](double seconds) {
    char text[48];
    std::snprintf(text, sizeof text, seconds < 1.0 ? "%.3g ms" : "%.3g s",
                  seconds < 1.0 ? seconds * 1e3 : seconds);
    return std::string(text);
  };
  const auto percent = [](double share) {
    char text[48];
    std::snprintf(text, sizeof text, "%.1f %%", share * 100);
    return std::string(text);
  };
  return to_string(plan.layout) + ", " + std::to_string(plan.micro_batches) + " of them\n" +
         "  memory     " + bytes(plan.memory.total()) + " a rank: parameters " +
         bytes(plan.memory.parameters) + ", gradients " + bytes(plan.memory.gradients) +
         ", optimizer " + bytes(plan.memory.optimizer) + ", activations " +
         bytes(plan.memory.activations) + (plan.fits ? "" : ": DOES NOT FIT") + "\n" +
         "  sent       dp " + bytes(plan.sent.dp) + ", tp " + bytes(plan.sent.tp) + ", pp " +
         bytes(plan.sent.pp) + " each way, a rank and step\n" + "  step       " +
         time(plan.step_s()) + ": compute " + time(plan.compute_s) + ", bubble " +
         time(plan.bubble_s) + " (" + percent(plan.bubble) + "), exposed dp " + time(plan.dp_s) +
         ", tp " + time(plan.tp_s) + ", pp " + time(plan.pp_s) + "\n" + "  speed      " +
         short_number(plan.rows_per_s, plan.rows_are_tokens ? "tokens/s" : "samples/s") + ", MFU " +
         percent(plan.mfu) + "\n";
}

}  // namespace tr::par
