// The trainer as it is made: all state of one rank. trainer.cpp makes it and steps,
// trainer_checks.cpp evaluates and compares.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "treering/parallel/trainer.hpp"

#include "parallel/batches.hpp"

namespace tr::par {

class TrainerOfMesh final : public Trainer {
 public:
  TrainerOfMesh(Compute& compute, const Model& model, const TrainerOptions& options, Mesh mesh)
      : compute_(compute),
        model_(model),
        options_(options),
        scaler_(options.scaler),
        mesh_(std::move(mesh)) {}
  Status start(const std::vector<int>& layers_of_stage);

  Result<StepReport> step(const Data& data, std::span<const std::int64_t> rows) override;
  Result<Score> evaluate(const Data& data, std::span<const std::int64_t> rows) override;
  Status save(const std::string& dir) override {
    return save_checkpoint(dir, mesh_, model_, compute_, *store_,
                           {store_->steps(), skipped_, position_, options_.seed, scaler_.scale(),
                            scaler_.clean_steps()});
  }
  Status load(const std::string& dir) override;

  Mesh& mesh() override { return mesh_; }
  ParameterStore& parameters() override { return *store_; }
  const StoreOptions& store_options() const override { return store_options_; }
  const std::vector<ParameterSpec>& own_parameters() const override { return own_; }
  const Schedule& schedule() const override { return schedule_; }
  Recompute recompute() const override { return options_.recompute; }
  Result<std::int64_t> activation_bytes(std::int64_t rows) const override;
  std::int64_t steps() const override { return store_->steps(); }
  std::int64_t skipped_steps() const override { return skipped_; }
  std::int64_t position() const override { return position_; }
  void set_learning_rate(double lr) override { store_->set_learning_rate(lr); }
  void set_observer(ActionObserver* observer) override { observer_ = observer; }
  Result<std::uint64_t> check_replicas() override;

 private:
  bool is_first_stage_here() const { return mesh_.at().pp == 0; }
  bool is_last_stage_here() const { return mesh_.at().pp == mesh_.shape().pp - 1; }
  double normalizer(std::int64_t rows) const {
    const auto outputs = static_cast<double>(model_.layers().back().output_width());
    return static_cast<double>(rows) * (model_.loss() == Loss::kMeanSquare ? outputs : 1.0);
  }
  BatchCut cut() const;
  // What a rank has of `total` rows; the last micro-batches may be short.
  std::vector<MicroBatch> batches_of(std::int64_t total) const {
    return cut().cut(total, mesh_.at().dp, mesh_.shape().dp,
                     static_cast<std::uint64_t>(store_->steps()));
  }
  Status check_schedule();
  Result<Schedule> schedule_for(int micro_batches) const;
  Status check_features(const Data& data, std::span<const std::int64_t> rows) const;
  Status check_batch(const Data& data, std::span<const std::int64_t> rows) const;
  Result<Pipeline*> pipeline_for(int micro_batches);
  // Features of a micro-batch, in the first stage's layout.
  Result<Spread> inputs(const Data& data, std::span<const std::int64_t> rows,
                        const MicroBatch& batch);
  std::vector<std::int32_t> labels(const Data& data, std::span<const std::int64_t> rows,
                                   const MicroBatch& batch) const;
  // The score of outputs, and their gradient if it is not empty.
  Result<Score> loss(const Data& data, std::span<const std::int64_t> rows, const MicroBatch& batch,
                     const View& outputs, double divisor, const View& gradient);
  // On every rank, of the last stages' scores.
  Result<Score> sum_scores(const Score& mine);
  Status refuse_not_finite();
  Result<Spread> forward_stage(Stage& stage, int number, const Data& data,
                               std::span<const std::int64_t> rows, const MicroBatch& batch,
                               Spread x);

  Compute& compute_;
  Model model_;
  TrainerOptions options_;
  LossScaler scaler_;
  Mesh mesh_;
  std::vector<ParameterSpec> own_;
  StoreOptions store_options_;
  std::unique_ptr<ParameterStore> store_;
  std::vector<std::unique_ptr<Stage>> stages_;          // of this rank
  std::map<int, std::unique_ptr<Pipeline>> pipelines_;  // by number of micro-batches
  Schedule schedule_;                                   // of the last step
  ActionObserver* observer_ = nullptr;
  std::int64_t position_ = 0, skipped_ = 0;
};

}  // namespace tr::par
