// Planning: what a layout costs in memory, bytes and time, before anything is run; and which layout
// to take.
//
// Everything is arithmetic on a few numbers of model and machine, so it says which of two layouts
// is better and why, and what cannot fit. It does not say how well kernels are written: that is the
// cluster's `efficiency`.
//
// Sources: bytes of mixed-precision Adam and ZeRO, Rajbhandari et al., SC 2020; activations of a
// transformer layer, s b h (34 + 5 a s / h), and their shares under tensor and sequence
// parallelism, Korthikanti et al., MLSys 2023; 6 operations a parameter and token, and MFU,
// Chowdhery et al., "PaLM", 2022.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "treering/parallel/stage.hpp"

namespace tr::par {

struct ModelShape {
  // Widths: layers of hidden x hidden. A row is a sample.
  static ModelShape mlp(int layers, std::int64_t hidden);
  // A row is a token; batches are counted in sequences. parameters = 0: 12 layers hidden^2.
  static ModelShape transformer(int layers, std::int64_t hidden, int heads, std::int64_t sequence,
                                double parameters = 0.0);
  bool is_transformer = false;
  int layers = 1;
  std::int64_t hidden = 1;
  int heads = 1;
  std::int64_t sequence = 1;  // rows of a batch's element
  double parameters = 1.0;
};

// Bytes of one element.
struct Precision {
  int parameter = 2, gradient = 4, master = 4, moments = 8, activation = 2;
  int state() const { return parameter + gradient + master + moments; }
  static Precision mixed() { return {}; }              // bf16 with fp32 master: 18
  static Precision fp32() { return {4, 4, 0, 8, 4}; }  // 16
};

struct Cluster {
  int ranks = 1, ranks_per_node = 8;
  double peak_flops = 989.5e12;                                // of one rank, dense
  double efficiency = 0.5;                                     // what matrix products reach of it
  double intra_bytes_per_s = 370e9, inter_bytes_per_s = 45e9;  // of one rank, one direction
  double memory_bytes = 80e9;
};

struct LayoutChoice {
  int dp = 1, pp = 1, tp = 1, zero = 0;
  std::int64_t micro_batch = 1;  // elements (sequences, samples)
  std::string schedule = "1f1b";
  int stages_per_rank = 1;
  bool is_megatron = true;  // tp: pairs of layers with one all-reduce; else gathered every layer
  bool is_sequence_parallel = false;
  Recompute recompute = Recompute::kNone;
};
std::string to_string(const LayoutChoice& layout);  // "dp 4 x pp 2 x tp 8, ZeRO-1, micro-batch 2"

struct Workload {
  ModelShape model;
  std::int64_t batch = 1;  // elements a step, of all replicas
  Precision precision;
};

struct Plan {
  LayoutChoice layout;
  int micro_batches = 1;  // of a replica and step
  struct Memory {         // bytes, of the rank that has most
    double parameters = 0.0, gradients = 0.0, optimizer = 0.0, activations = 0.0;
    double total() const { return parameters + gradients + optimizer + activations; }
  } memory;
  bool fits = false;
  struct Sent {                           // bytes that such a rank sends in a step
    double dp = 0.0, tp = 0.0, pp = 0.0;  // pp: in each of both directions
  } sent;
  double flops = 0.0;  // of one rank and step; without what is computed again
  double bubble = 0.0;
  // Seconds of a step. The communication's: as far as nothing is computed beside it.
  double compute_s = 0.0, bubble_s = 0.0, dp_s = 0.0, tp_s = 0.0, pp_s = 0.0;
  double step_s() const { return compute_s + bubble_s + dp_s + tp_s + pp_s; }
  double rows_per_s = 0.0;       // of the whole cluster
  bool rows_are_tokens = false;  // else samples
  double mfu = 0.0;
};
// TR_INVALID_ARGUMENT names what does not fit together: dp x pp x tp and the ranks, batch and
// micro-batches, layers and stages, heads and tp.
Result<Plan> make_plan(const Workload& workload, const Cluster& cluster,
                       const LayoutChoice& layout);
std::string to_string(const Plan& plan);
// For people: "7.00 GB", "12.5 k", "3".
std::string short_number(double value, const std::string& unit = "");

struct Recommendation {
  Plan plan;  // the simplest of those that fit and are within 5 % of the fastest
  std::vector<std::string> reasons;  // a sentence each
};
// TR_INVALID_ARGUMENT, with what is missing, if nothing fits.
Result<Recommendation> recommend(const Workload& workload, const Cluster& cluster);

// ---- The pieces, for one's own arithmetic.
// Bytes a parameter and rank.
double state_bytes(const Precision& precision, int zero, int replicas);
// Of one micro-batch and the whole model, on one rank of tp. Of a perceptron that computes all
// again: of one stage, which keeps its input alone (a transformer keeps each layer's).
double activation_bytes(const ModelShape& model, std::int64_t micro_batch,
                        const Precision& precision, const LayoutChoice& layout = {});
// What a rank keeps for its backward passes, at most, when `in_flight` micro-batches of its stages
// have begun and not ended: verify() says how many, of any schedule. What is in work comes on top.
double peak_activation_bytes(const ModelShape& model, std::int64_t micro_batch,
                             const Precision& precision, const LayoutChoice& layout,
                             double in_flight);
// How many micro-batches of a stage are kept at once, at most; interleaved: a fraction of all its
// stages' activations.
double kept_micro_batches(const LayoutChoice& layout, int micro_batches);
// Micro-batches of a replica: batch / (micro_batch dp).
Result<int> accumulation(std::int64_t batch, std::int64_t micro_batch, int replicas);
double mfu(double parameters, double rows_per_s, int ranks, double peak_flops);

// Communication over the computation that can hide it; up to 1 it can. `flops_per_byte`: of a
// rank's computation and its link.
//   DP: gradients beside the backward pass of `rows` rows.
double dp_ratio(int replicas, int gradient_bytes, double rows, double flops_per_byte);
//   TP: a pair's all-reduce beside its products, of `inner` columns between them.
double tp_ratio(int ranks, int activation_bytes, double inner, double flops_per_byte);
//   PP: a boundary beside the `layers` layers of a stage.
double pp_ratio(int activation_bytes, double layers, double hidden, double flops_per_byte);
//   ZeRO-3: a layer's all-gather beside the forward pass of `rows` rows.
double zero3_ratio(int replicas, int parameter_bytes, double rows, double flops_per_byte);

}  // namespace tr::par
