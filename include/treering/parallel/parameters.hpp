// ParameterStore: one rank's parameters, gradients and optimizer state, and their reduction over
// the data-parallel replicas: plain data parallelism and ZeRO stages 1 to 3 (Rajbhandari et al.,
// "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020) in one place.
//
// Parameters lie in flat buckets of whole layers, the last layer first: the order in which the
// backward pass finishes gradients, so that a bucket's reduction can start early (Li et al.,
// "PyTorch Distributed", VLDB 2020). A bucket is padded to a multiple of the replicas; slice d of
// it is what replica d owns when state is sharded.
//
//   zero   parameters      gradients       optimizer    bytes a step and rank
//   0      whole           whole           whole        all-reduce             2 (n-1)/n S
//   1      whole           whole           slice        reduce-scatter, all-gather: the same
//   2      whole           slice (a bucket is whole from its first gradient to its reduction)
//   3      slice (whole from acquire to release; a bucket is a layer)
//                          slice           slice        + (n-1)/n S for each further all-gather
//
// Buckets are reduced strictly by index, never by who happens to be ready: all replicas must issue
// their collectives in one order. What replicas tell each other about themselves (layouts, which
// layer was not ready, parts of the norm: some bytes a layer) travels in a group of the store's
// own, which dp's traffic does not count. Gradients are sums over ranks and micro-batches, never
// averages: losses are divided by the global number of rows.
//
// Threads: one rank's thread. create, finish, step, norms, and with zero 3 acquire are collective
// over dp (and tp where gradients are partial there).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "treering/parallel/comm.hpp"
#include "treering/parallel/compute.hpp"
#include "treering/parallel/model.hpp"

namespace tr::par {

// Replaces the sum of a bucket over the replicas: compression. Called once a bucket and step, in
// bucket order; blocks. `bucket` numbers it, so that a hook can keep a residual for each.
class GradientHook {
 public:
  virtual ~GradientHook() = default;
  virtual const char* name() const = 0;
  // gradient: flat, this replica's, a multiple of the replicas long; becomes the sum over all
  // replicas, the same bits on each.
  virtual Status reduce(Comm& dp, Compute& compute, int bucket, const View& gradient) = 0;
  // What this rank keeps from step to step, for a checkpoint, and back again in the same layout.
  // Nothing by default. TR_INVALID_ARGUMENT: not such a state.
  virtual std::string state() const { return {}; }
  virtual Status restore(const std::string& state);
};
std::unique_ptr<GradientHook> make_bf16_hook();  // rounded to bf16 where they are sent
// One byte an element and a scale for each 256; what rounding lost is added to the next step's
// gradient (error feedback: Seide et al., Interspeech 2014).
std::unique_ptr<GradientHook> make_int8_hook();

struct OptimizerOptions {
  bool is_adamw = true;
  AdamWOptions adamw = {};
  double sgd_lr = 0.1, sgd_momentum = 0.0;
};

struct StoreOptions {
  int zero = 0;
  DType type = DType::kFloat32;  // as the layers see parameters; gradients are accumulator_of(type)
  std::int64_t bucket_bytes = 25 << 20;       // closed before it would grow over this
  std::int64_t first_bucket_bytes = 1 << 20;  // small, so that communication starts early
  bool overlap = true;                        // false: everything in finish()
  bool check_finite = false;                  // looks through a bucket just before it is reduced
  GradientHook* hook = nullptr;               // with zero 0 only; outlives the store
  OptimizerOptions optimizer = {};
};

struct BucketInfo {
  std::vector<int> layers;           // whole layers
  std::int64_t elements = 0;         // without the padding
  std::int64_t padded_elements = 0;  // a multiple of the replicas
};

// Bytes of a store on one rank, as Compute::memory() counts them.
struct StoreMemory {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;  // always there
  // At most so much more in a step: buckets that are whole for a while, two at a time. A layer's
  // parameters are taken to be prefetched while the one before it is in use.
  std::int64_t transient = 0;
  std::int64_t peak() const { return parameters + gradients + optimizer + transient; }
};
// accumulates: several micro-batches a step, so that no gradient is reduced before the last.
Result<StoreMemory> predict_memory(std::span<const ParameterSpec> mine, int dp, int tp,
                                   const StoreOptions& options, bool accumulates = false);
// What one step sends over dp, without a hook. gathers: how often a step acquires each layer anew,
// with zero 3 (forward and backward: 2).
Result<Traffic> predict_traffic(std::span<const ParameterSpec> mine, int dp_rank, int dp, int tp,
                                const StoreOptions& options, int gathers = 2);

class ParameterStore {
 public:
  // mine: the parameters of this rank's layers, in the model's order. All replicas must give the
  // same, and the same options: a difference is TR_MISMATCH and names the first parameter that
  // differs. All but model outlive the store.
  static Result<std::unique_ptr<ParameterStore>> create(Comm& dp, Comm& tp, Compute& compute,
                                                        const Model& model,
                                                        std::vector<ParameterSpec> mine,
                                                        const StoreOptions& options);
  virtual ~ParameterStore() = default;

  virtual Status initialize(std::uint64_t seed) = 0;
  virtual const std::vector<BucketInfo>& buckets() const = 0;

  // ---- For layers. Between acquire and release a layer's parameters are whole here. prefetch
  // starts what acquire waits for; both do nothing but with zero 3.
  virtual Status prefetch(int layer) = 0;
  virtual Status acquire(int layer) = 0;
  virtual void release(int layer) = 0;
  virtual View parameter(int number) = 0;  // local shape; of an acquired layer
  // Accumulates over micro-batches: zero at the beginning of a step. Local shape. With zero 2 and 3
  // the memory comes when it is first asked for. TR_INVALID_USAGE from the reduction of its bucket
  // on; with zero 0 and 1 the reduced gradient is there again between finish and step.
  virtual Result<View> gradient(int number) = 0;
  // The layer's gradients are complete: its bucket may be reduced.
  virtual Status ready(int layer) = 0;
  // For a replica that has run out of rows: all layers are ready and add nothing, so that the
  // others can finish. With zero 3 that takes micro-batches of no rows: TR_UNSUPPORTED.
  virtual Status ready_empty() = 0;

  // ---- For the trainer, once a step.
  // All gradients are reduced when it returns. TR_INVALID_ARGUMENT names a layer that was not ready
  // and the replica, on every replica; the gradients are then to be dropped.
  virtual Status finish() = 0;
  // Of the reduced gradient over all ranks of `model` (every parameter once, whatever the layout).
  virtual Result<double> gradient_norm(Comm& model) = 0;
  // Names a NaN or an infinity in this rank's own gradients; "" if there is none. Of buckets whose
  // reduction has begun it knows what check_finite found.
  virtual Result<std::string> find_not_finite() = 0;
  // Gradients times `factor` (loss scale, clipping), then the optimizer, then the parameters go out
  // to all replicas. Gradients are zero again. After finish, with no layer acquired:
  // TR_INVALID_USAGE.
  virtual Status step(double factor) = 0;
  virtual Status drop_gradients() = 0;  // a step is skipped
  virtual void set_learning_rate(double lr) = 0;
  virtual std::int64_t steps() const = 0;

  // ---- For checkpoints, hashes and tests. This rank's piece of a parameter's flat local range, as
  // the optimizer keeps it: with sharded state a part of it, perhaps none.
  struct Piece {
    int number = 0;          // of the parameter
    std::int64_t first = 0;  // flat, in the rank's local part
    View master, m, v;       // flat; empty where the optimizer has none
    bool is_owner = true;    // false: another replica has the same and writes it
  };
  virtual std::vector<Piece> pieces() = 0;
  virtual GradientHook* hook() const = 0;  // nullptr: none
  virtual Status set_steps(std::int64_t steps) = 0;
  virtual Status publish_parameters() = 0;  // after pieces were written: masters to all replicas
  // Of all parameters' bits: the same on all replicas, or they have drifted apart.
  virtual Result<std::uint64_t> hash() = 0;
};

}  // namespace tr::par
