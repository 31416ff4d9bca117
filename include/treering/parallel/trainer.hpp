// Trainer: a model, a mesh and options become training steps. The declarative form of everything
// else in this folder:
//
//   Model model(Loss::kCrossEntropy);
//   model.linear(784, 256, Split::kColumn).relu().linear(256, 10, Split::kRow);
//   auto trainer = Trainer::create(std::move(world), *compute, model, {.mesh = {2, 1, 2}});
//   for (...) trainer.value()->step(batch);
//
// Rows of a global batch are shared by the replicas, as evenly as can be, and each replica's share
// is cut into micro-batches of at most micro_batch rows. Losses are divided by the global number
// of rows and gradients are summed, so that any layout trains what one rank alone would.
//
// Threads: one rank's thread. create, step, evaluate, save and load are collective over the mesh.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "treering/parallel/checkpoint.hpp"
#include "treering/parallel/loss_scaler.hpp"
#include "treering/parallel/mesh.hpp"
#include "treering/parallel/parameters.hpp"
#include "treering/parallel/pipeline.hpp"
#include "treering/parallel/stage.hpp"

namespace tr::par {

// Rows of training data, by number. Every rank has all of it, or can make any row.
class Data {
 public:
  virtual ~Data() = default;
  virtual std::int64_t rows() const = 0;
  virtual std::int64_t features() const = 0;
  // Features of these rows, row-major, and their labels (empty where the loss has none).
  virtual void read(std::span<const std::int64_t> rows, std::span<float> features,
                    std::span<std::int32_t> labels) const = 0;
};

struct TrainerOptions {
  MeshShape mesh;
  // Of the pipeline. "1f1b" and its like, or a whole schedule.
  std::string schedule = "1f1b";
  int stages_per_rank = 1;
  std::vector<int> stage_layers;  // how many layers each stage has; empty: as even as can be
  std::string schedule_csv;       // instead of `schedule`; every batch, a short one too, is cut
                                  // into its number of micro-batches, some of no rows if need be

  std::int64_t micro_batch = 0;  // rows at most; 0: a replica's whole share
  int micro_batches = 0;         // instead: exactly so many for each replica
  DType type = DType::kFloat32;
  int zero = 0;
  std::int64_t bucket_bytes = 25 << 20, first_bucket_bytes = 1 << 20;
  bool overlap = true;
  int tp_chunks = 1;
  Recompute recompute = Recompute::kNone;
  GradientHook* hook = nullptr;  // outlives the trainer
  OptimizerOptions optimizer;
  LossScaler scaler = LossScaler::none();
  double clip_norm = 0.0;     // gradients of a larger norm are scaled down to it; 0: never
  bool rank_order = false;    // sums fold in rank order: bits equal the serial run's
  bool check_finite = false;  // looks for NaN in each rank's gradients before they are summed
  std::uint64_t seed = 1;
};

struct StepReport {
  Score score;  // over the global batch, on every rank
  double gradient_norm = 0.0;
  bool skipped = false;  // gradients overflowed; the loss scale was lowered
  double loss_scale = 1.0;
  int micro_batches = 0;
  // Seconds on this rank; what communication took and hid: see the trace.
  double pipeline_s = 0.0, reduce_s = 0.0, optimizer_s = 0.0;
};

class Trainer {
 public:
  // model is copied; compute outlives the trainer. TR_INVALID_ARGUMENT names numbers that do not
  // fit together: dp pp tp and the ranks, layers and stages, widths and tp, zero and hooks, the
  // schedule and the stages. A schedule of one's own is verified here.
  static Result<std::unique_ptr<Trainer>> create(std::unique_ptr<Comm> world, Compute& compute,
                                                 const Model& model, const TrainerOptions& options);
  virtual ~Trainer() = default;  // all that is left of a trainer whose step failed

  // One optimizer step on these rows. TR_INVALID_ARGUMENT, before anything was sent, for a batch
  // that the layout cannot cut (sequence parallelism: rows must be a multiple of tp).
  virtual Result<StepReport> step(const Data& data, std::span<const std::int64_t> rows) = 0;
  // Forward only; any number of rows, whatever the layout.
  virtual Result<Score> evaluate(const Data& data, std::span<const std::int64_t> rows) = 0;

  virtual Status save(const std::string& dir) = 0;
  virtual Status load(const std::string& dir) = 0;  // any layout's checkpoint

  virtual Mesh& mesh() = 0;
  virtual ParameterStore& parameters() = 0;
  virtual const StoreOptions& store_options() const = 0;
  // Of this rank's layers, in the model's order.
  virtual const std::vector<ParameterSpec>& own_parameters() const = 0;
  // Of the last step; before the first one, of a file, else without actions.
  virtual const Schedule& schedule() const = 0;
  virtual Recompute recompute() const = 0;
  // Bytes of activations that a step of so many rows has on this rank, at most.
  virtual Result<std::int64_t> activation_bytes(std::int64_t rows) const = 0;
  virtual std::int64_t steps() const = 0;          // of the optimizer
  virtual std::int64_t skipped_steps() const = 0;  // their gradients overflowed
  virtual std::int64_t position() const = 0;       // rows trained on since the beginning
  virtual void set_learning_rate(double lr) = 0;
  virtual void set_observer(ActionObserver* observer) = 0;  // of pipeline actions
  // One number for all parameters of the model; the same on all ranks, or TR_MISMATCH says which
  // replicas have drifted apart.
  virtual Result<std::uint64_t> check_replicas() = 0;
};

// The order of rows in an epoch: a function of (seed, epoch), so that every rank and every resumed
// run draws the same.
std::vector<std::int64_t> shuffled_rows(std::int64_t rows, std::uint64_t seed, int epoch);
// Rows [first, first + count) of `total` that part `index` of `parts` gets; the earlier parts get
// the remainder.
struct Share {
  std::int64_t first = 0, count = 0;
};
Share share_of(std::int64_t total, int index, int parts);

}  // namespace tr::par
