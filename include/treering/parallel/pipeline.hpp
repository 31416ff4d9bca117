// Runs a schedule: one rank's actions of a step, in order.
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
  // stages: this rank's, stages_per_rank of them. The schedule is verified here, and compared with
  // the other ranks': TR_MISMATCH if they differ.
  static Result<std::unique_ptr<Pipeline>> create(Mesh& mesh, Compute& compute, Schedule schedule,
                                                  std::vector<Stage*> stages, DType type);
  virtual ~Pipeline() = default;
  // One step's forward and backward passes. The score of the last stage's rank; zero elsewhere.
  virtual Result<Score> run(const PipelineInput& input, ActionObserver* observer = nullptr) = 0;
  virtual const Schedule& schedule() const = 0;
};

}  // namespace tr::par
