// Stage: a run of consecutive layers on one rank, with forward and backward passes written out. No
// automatic differentiation, so that the places where gradients become ready, and where bytes move,
// are in plain sight.
//
//   forward    z = x W + b             y = act(z)
//   backward   dz = dy * act'(z)       dx = dz W^T       dW = x^T dz       db = column sums of dz
//
// Several micro-batches may be in flight: what the backward pass needs is kept by micro-batch.
// Micro-batches end in the order in which they began, so that gradients are summed in one order in
// every schedule (and the bits agree).
//
// Layers need and leave layouts (layout.hpp, model.hpp); between them Relayout moves bytes. dx is
// computed and its relayout started before dW, which then runs beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "treering/parallel/comm.hpp"
#include "treering/parallel/compute.hpp"
#include "treering/parallel/layout.hpp"
#include "treering/parallel/model.hpp"
#include "treering/parallel/parameters.hpp"

namespace tr::par {

// What is kept for the backward pass, and what is computed again.
enum class Recompute : std::uint8_t {
  kNone,        // of each layer, its input and what is before the activation
  kActivation,  // before the activation; inputs only where they do not follow from that alone
  kFull,        // a stage's input alone: forward runs again, and what moved in it moves again
};

struct StageOptions {
  DType type = DType::kFloat32;
  Recompute recompute = Recompute::kNone;
  bool overlap = true;     // dx's relayout beside dW
  int tp_chunks = 1;       // GEMMs next to a gather or scatter by rows run in so many pieces, each
                           // piece's communication beside the next piece's GEMM
  std::uint64_t seed = 1;  // of dropout
};

// Which rows of the global batch a micro-batch holds, for dropout.
struct MicroBatch {
  int number = 0;  // in the step
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::uint64_t step = 0;
  bool is_training = true;  // false: nothing is dropped out, and nothing kept for backward
};

class Stage {
 public:
  // Layers [first, end) of the model. All but model outlive the stage; model is copied.
  static Result<std::unique_ptr<Stage>> create(const Model& model, int first, int end, Comm& tp,
                                               Compute& compute, ParameterStore& parameters,
                                               const StageOptions& options);
  virtual ~Stage() = default;

  // How activations go in and out: kReplicated, or kRows under sequence parallelism.
  virtual Layout boundary() const = 0;
  virtual std::int64_t input_width() const = 0;
  virtual std::int64_t output_width() const = 0;
  // Bytes of activations of a micro-batch of so many rows: what it keeps between its forward and
  // its backward pass, the most that it has while one of them runs, and a message's.
  struct ActivationBytes {
    std::int64_t kept = 0, working = 0, message = 0;
  };
  virtual ActivationBytes activation_bytes(std::int64_t rows, bool split_weights) const = 0;

  // x in boundary() layout. The answer is in boundary() layout too; of the model's last stage,
  // replicated: the logits.
  virtual Result<Spread> forward(const MicroBatch& batch, Spread x) = 0;
  // dy: gradient of what forward answered. Answers dx, empty (nothing was computed or sent) for the
  // model's first stage. Calls parameters.ready(layer) for each layer, last first, if is_last: no
  // later micro-batch adds to the gradients. With split_weights dW is left for weights().
  virtual Result<Spread> backward(int micro_batch, Spread dy, bool is_last,
                                  bool split_weights = false) = 0;
  virtual Status weights(int micro_batch, bool is_last) = 0;  // zero-bubble schedules
  virtual int in_flight() const = 0;  // micro-batches between forward and the end of backward
};

}  // namespace tr::par
