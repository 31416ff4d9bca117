// Runs a schedule: one rank's actions of a step, in order.
//
// Each exchange issues its sends, then the receives of the next exchange, then waits for its own
// receives. What was sent two exchanges ago is waited for, so that its memory is free again; by
// then it was received, or verify would have found a deadlock. Received tensors are kept by stage,
// micro-batch and direction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "treering/parallel/mesh.hpp"
#include "treering/parallel/schedule.hpp"
#include "treering/parallel/stage.hpp"

namespace tr::par {

// Told of every action of a step, for traces: called at its beginning and its end.
class ActionObserver {
 public:
  virtual ~ActionObserver() = default;
  virtual void begin(const Action& action) = 0;
  virtual void end(const Action& action) = 0;
};

struct PipelineInput {
  std::span<const MicroBatch> batches;
  // The rows of a micro-batch in the first stage's boundary layout.
  std::function<Result<Spread>(const MicroBatch&)> inputs;
  // Of the last stage: its loss, and the gradient of the outputs.
  struct Loss {
    Score score;
    Spread gradient;
  };
  std::function<Result<Loss>(const MicroBatch&, const Spread& outputs)> loss;
};

class Pipeline {
 public:
  // Collective over the mesh. stages: this rank's, stages_per_rank of them; they, mesh and compute
  // outlive the answer. type: of activations and their gradients. The schedule is compared with the
  // other ranks' (TR_MISMATCH if they differ) and verified; so are the widths of stages that follow
  // each other.
  static Result<std::unique_ptr<Pipeline>> create(Mesh& mesh, Compute& compute, Schedule schedule,
                                                  std::vector<Stage*> stages, DType type);
  virtual ~Pipeline() = default;
  // One step's forward and backward passes. The score of the last stage's rank; zero elsewhere.
  // After an error in the middle of a step the other ranks miss what this one did not send.
  virtual Result<Score> run(const PipelineInput& input, ActionObserver* observer = nullptr) = 0;
  virtual const Schedule& schedule() const = 0;
};

}  // namespace tr::par
