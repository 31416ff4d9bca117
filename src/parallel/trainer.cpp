#include "treering/parallel/trainer.hpp"

#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "treering/parallel/rng.hpp"

#include "parallel/agree.hpp"
#include "parallel/batches.hpp"
#include "parallel/compare_options.hpp"
#include "parallel/trainer_of_mesh.hpp"

namespace tr::par {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

Error invalid(const std::string& what) { return {TR_INVALID_ARGUMENT, what}; }

// How many layers each stage of the pipeline has.
Result<std::vector<int>> stage_layers(const Model& model, const TrainerOptions& options) {
  const int layers = static_cast<int>(model.layers().size());
  const int stages = options.mesh.pp * options.stages_per_rank;
  if (options.stages_per_rank < 1) return invalid("stages_per_rank must be at least 1");
  if (layers < stages) {
    return invalid(std::to_string(layers) + " layers cannot be " + std::to_string(stages) +
                   " pipeline stages (pp " + std::to_string(options.mesh.pp) + " x " +
                   std::to_string(options.stages_per_rank) + " a rank)");
  }
  if (options.stage_layers.empty()) return even_stages(layers, stages);
  const int sum = std::accumulate(options.stage_layers.begin(), options.stage_layers.end(), 0);
  const bool positive = std::all_of(options.stage_layers.begin(), options.stage_layers.end(),
                                    [](int n) { return n > 0; });
  if (static_cast<int>(options.stage_layers.size()) != stages || sum != layers || !positive) {
    return invalid("stage_layers must be " + std::to_string(stages) +
                   " numbers of at least 1 whose sum is " + std::to_string(layers));
  }
  return options.stage_layers;
}

}  // namespace

Status TrainerOfMesh::start(const std::vector<int>& layers_of_stage) {
  const int pp = mesh_.shape().pp, s = mesh_.at().pp;
  std::vector<std::pair<int, int>> ranges;  // of layers, of all stages
  for (const int count : layers_of_stage) {
    const int first = ranges.empty() ? 0 : ranges.back().second;
    ranges.emplace_back(first, first + count);
  }
  for (const ParameterSpec& p : model_.parameters()) {
    for (std::size_t i = static_cast<std::size_t>(s); i < ranges.size();
         i += static_cast<std::size_t>(pp)) {
      if (ranges[i].first <= p.layer && p.layer < ranges[i].second) own_.push_back(p);
    }
  }
  StoreOptions& store = store_options_;
  store.zero = options_.zero;
  store.type = options_.type;
  store.bucket_bytes = options_.bucket_bytes;
  store.first_bucket_bytes = options_.first_bucket_bytes;
  store.overlap = options_.overlap;
  store.check_finite = options_.check_finite;
  store.hook = options_.hook;
  store.optimizer = options_.optimizer;
  Result<std::unique_ptr<ParameterStore>> made =
      ParameterStore::create(mesh_.dp(), mesh_.tp(), compute_, model_, own_, store);
  if (!made) return made.error();
  store_ = std::move(made).value();
  if (Status done = store_->initialize(options_.seed); !done) return done;

  StageOptions stage;
  stage.type = options_.type;
  stage.recompute = options_.recompute;
  stage.overlap = options_.overlap;
  stage.tp_chunks = options_.tp_chunks;
  stage.seed = options_.seed;
  for (std::size_t i = static_cast<std::size_t>(s); i < ranges.size();
       i += static_cast<std::size_t>(pp)) {
    Result<std::unique_ptr<Stage>> one = Stage::create(model_, ranges[i].first, ranges[i].second,
                                                       mesh_.tp(), compute_, *store_, stage);
    if (!one) return one.error();
    stages_.push_back(std::move(one).value());
  }
  return check_schedule();
}

// Before anything is trained, as far as it is known now into how many micro-batches a batch is cut.
Status TrainerOfMesh::check_schedule() {
  if (!options_.schedule_csv.empty()) {
    const Result<Schedule> own = schedule_from_csv(options_.schedule_csv);
    if (!own) return own.error();
    const int m = own.value().micro_batches;
    if (options_.micro_batches > 0 && options_.micro_batches != m) {
      return invalid("the schedule is for " + std::to_string(m) + " micro-batches, not " +
                     std::to_string(options_.micro_batches));
    }
    options_.micro_batches = m;
  }
  if (options_.micro_batches == 0) {
    const Result<Schedule> any = schedule_for(cut().multiple_of);
    return any ? Status() : Status(any.error());
  }
  const Result<Pipeline*> made = pipeline_for(options_.micro_batches);
  if (!made) return made.error();
  schedule_ = made.value()->schedule();
  return {};
}

Status TrainerOfMesh::check_features(const Data& data, std::span<const std::int64_t> rows) const {
  if (rows.empty()) return invalid("a batch of no rows");
  if (data.features() != model_.layers().front().input_width()) {
    return invalid("rows have " + std::to_string(data.features()) + " features, and the model " +
                   std::to_string(model_.layers().front().input_width()) + " inputs");
  }
  return {};
}

Status TrainerOfMesh::check_batch(const Data& data, std::span<const std::int64_t> rows) const {
  if (Status s = check_features(data, rows); !s) return s;
  const BatchCut how = cut();
  const auto unit = how.unit;
  const std::int64_t most = how.longest(static_cast<std::int64_t>(rows.size()), mesh_.shape().dp);
  if (how.micro_batch > 0 && most > how.micro_batch) {
    return invalid("a batch of " + std::to_string(rows.size()) + " rows, cut into " +
                   std::to_string(how.micro_batches) + " micro-batches, has some of " +
                   std::to_string(most) + " rows; micro_batch allows " +
                   std::to_string(how.micro_batch));
  }
  if (static_cast<std::int64_t>(rows.size()) % unit == 0) return {};
  return invalid("a batch of " + std::to_string(rows.size()) + " rows cannot be shared by tp " +
                 std::to_string(unit) + " ranks (sequence parallelism): take a multiple");
}

BatchCut TrainerOfMesh::cut() const {
  BatchCut cut;
  cut.micro_batch = options_.micro_batch;
  cut.micro_batches = options_.micro_batches;
  if (options_.stages_per_rank > 1) cut.multiple_of = mesh_.shape().pp;
  if (model_.is_sequence_parallel()) cut.unit = mesh_.shape().tp;
  return cut;
}

Result<Schedule> TrainerOfMesh::schedule_for(int micro_batches) const {
  if (!options_.schedule_csv.empty()) return schedule_from_csv(options_.schedule_csv);
  return make_schedule(options_.schedule, mesh_.shape().pp, micro_batches,
                       options_.stages_per_rank);
}

Result<Pipeline*> TrainerOfMesh::pipeline_for(int micro_batches) {
  std::unique_ptr<Pipeline>& pipeline = pipelines_[micro_batches];
  if (pipeline != nullptr) return pipeline.get();
  Result<Schedule> schedule = schedule_for(micro_batches);
  if (!schedule) return schedule.error();
  std::vector<Stage*> stages;
  for (const std::unique_ptr<Stage>& stage : stages_) stages.push_back(stage.get());
  Result<std::unique_ptr<Pipeline>> made = Pipeline::create(
      mesh_, compute_, std::move(schedule).value(), std::move(stages), options_.type);
  if (!made) return made.error();
  pipeline = std::move(made).value();
  return pipeline.get();
}

Result<Spread> TrainerOfMesh::inputs(const Data& data, std::span<const std::int64_t> rows,
                                     const MicroBatch& batch) {
  Share part{batch.first_row, batch.rows};
  const Layout layout = stages_.front()->boundary();
  if (layout == Layout::kRows) {
    part.count /= mesh_.shape().tp;
    part.first += part.count * mesh_.at().tp;
  }
  const std::int64_t features = data.features();
  std::vector<float> x;
  if (!compute_.is_dry()) {
    x.resize(static_cast<std::size_t>(part.count * features));
    data.read(
        rows.subspan(static_cast<std::size_t>(part.first), static_cast<std::size_t>(part.count)), x,
        {});
  }
  const auto make = [&](DType type) {
    return Tensor::make(compute_.memory(), Use::kActivations, part.count, features, type);
  };
  Result<Tensor> read = make(DType::kFloat32);
  if (!read) return read.error();
  if (Status s = compute_.upload(x.data(), read.value().view()); !s) return s.error();
  if (Status s = compute_.synchronize(); !s) return s.error();  // x ends here
  if (options_.type == DType::kFloat32) return Spread{std::move(read).value(), layout};
  Result<Tensor> converted = make(options_.type);
  if (!converted) return converted.error();
  if (Status s = compute_.copy(read.value().view(), converted.value().view()); !s) {
    return s.error();
  }
  return Spread{std::move(converted).value(), layout};
}

std::vector<std::int32_t> TrainerOfMesh::labels(const Data& data,
                                                std::span<const std::int64_t> rows,
                                                const MicroBatch& batch) const {
  if (model_.loss() != Loss::kCrossEntropy) return {};
  std::vector<std::int32_t> labels(static_cast<std::size_t>(batch.rows));
  if (compute_.is_dry()) return labels;
  data.read(rows.subspan(static_cast<std::size_t>(batch.first_row), labels.size()), {}, labels);
  return labels;
}

Result<Score> TrainerOfMesh::loss(const Data& data, std::span<const std::int64_t> rows,
                                  const MicroBatch& batch, const View& outputs, double divisor,
                                  const View& gradient) {
  if (model_.loss() == Loss::kMeanSquare) {
    return compute_.mean_square(outputs, divisor, scaler_.scale(), gradient);
  }
  return compute_.cross_entropy(outputs, labels(data, rows, batch), divisor, scaler_.scale(),
                                gradient);
}

Result<Score> TrainerOfMesh::sum_scores(const Score& mine) {
  // Shards of the last stage have the same score: one of them counts.
  const bool counts = is_last_stage_here() && mesh_.at().tp == 0;
  double sums[] = {counts ? mine.loss_sum : 0.0, counts ? static_cast<double>(mine.correct) : 0.0,
                   counts ? static_cast<double>(mine.rows) : 0.0};
  if (Status s = sum_over(mesh_.world(), compute_, sums); !s) return s.error();
  return Score{sums[0], std::llround(sums[1]), std::llround(sums[2])};
}

// A NaN is named where it arose, before sums spread it to all replicas.
Status TrainerOfMesh::refuse_not_finite() {
  Result<std::string> found = store_->find_not_finite();
  if (!found) return found.error();
  const Status mine = found.value().empty() ? Status() : Status(invalid(found.value()));
  return agree(mesh_.world(), compute_, mine);
}

Result<StepReport> TrainerOfMesh::step(const Data& data, std::span<const std::int64_t> rows) {
  if (Status s = check_batch(data, rows); !s) return s.error();
  const auto total = static_cast<std::int64_t>(rows.size());
  const std::vector<MicroBatch> batches = batches_of(total);
  Result<Pipeline*> pipeline = pipeline_for(static_cast<int>(batches.size()));
  if (!pipeline) return pipeline.error();
  schedule_ = pipeline.value()->schedule();

  StepReport report;
  report.micro_batches = static_cast<int>(batches.size());
  PipelineInput input;
  input.batches = batches;
  input.inputs = [&](const MicroBatch& batch) { return inputs(data, rows, batch); };
  input.loss = [&](const MicroBatch& batch, const Spread& outputs) -> Result<PipelineInput::Loss> {
    const View& y = outputs.tensor.view();
    Result<Tensor> gradient =
        Tensor::make(compute_.memory(), Use::kActivations, y.rows, y.cols, y.type);
    if (!gradient) return gradient.error();
    Result<Score> score = loss(data, rows, batch, y, normalizer(total), gradient.value().view());
    if (!score) return score.error();
    return PipelineInput::Loss{score.value(), {std::move(gradient).value(), outputs.layout}};
  };
  SteadyClock::time_point start = SteadyClock::now();
  Result<Score> mine = pipeline.value()->run(input, observer_);
  if (!mine) return mine.error();
  report.pipeline_s = seconds_since(start);

  start = SteadyClock::now();
  if (options_.check_finite) {
    if (Status s = refuse_not_finite(); !s) return s.error();
  }
  if (Status s = store_->finish(); !s) return s.error();
  Result<double> norm = store_->gradient_norm(mesh_.model());
  if (!norm) return norm.error();
  Result<Score> score = sum_scores(mine.value());
  if (!score) return score.error();
  report.reduce_s = seconds_since(start);
  report.score = score.value();
  report.loss_scale = scaler_.scale();
  report.gradient_norm = norm.value() / scaler_.scale();

  start = SteadyClock::now();
  // All ranks have the same norm, so all skip a step or none.
  report.skipped = scaler_.is_on() && !std::isfinite(norm.value());
  scaler_.update(report.skipped);
  skipped_ += report.skipped ? 1 : 0;
  double factor = 1.0 / report.loss_scale;
  if (options_.clip_norm > 0.0 && report.gradient_norm > options_.clip_norm) {
    factor *= options_.clip_norm / report.gradient_norm;
  }
  if (Status s = report.skipped ? store_->drop_gradients() : store_->step(factor); !s) {
    return s.error();
  }
  position_ += total;
  report.optimizer_s = seconds_since(start);
  return report;
}

Status TrainerOfMesh::load(const std::string& dir) {
  Result<TrainingState> state =
      load_checkpoint(dir, mesh_, model_, compute_, *store_, options_.seed);
  if (!state) return state.error();
  position_ = state.value().position;
  skipped_ = state.value().skipped;
  scaler_.restore(state.value().loss_scale, state.value().clean_steps);
  return {};
}

Result<std::unique_ptr<Trainer>> Trainer::create(std::unique_ptr<Comm> world, Compute& compute,
                                                 const Model& model,
                                                 const TrainerOptions& options) {
  if (const std::optional<void*> stream = compute.stream()) world->set_compute_stream(*stream);
  if (Status s = compare_options(*world, compute, model, options); !s) return s.error();
  if (options.zero < 0 || options.zero > 3) return invalid("zero must be 0, 1, 2 or 3");
  if (options.micro_batch < 0 || options.micro_batches < 0) {
    return invalid("micro_batch and micro_batches must be at least 0");
  }
  if (options.hook != nullptr && options.zero != 0) {
    return invalid("gradient compression works with zero 0 only");
  }
  if (options.check_finite && options.scaler.is_on()) {
    return invalid("check_finite and a loss scaler: an overflow is what the scaler looks for");
  }
  if (Status s = model.check(options.mesh.tp); !s) return s.error();
  Result<std::vector<int>> layers = stage_layers(model, options);
  if (!layers) return layers.error();
  Result<Mesh> mesh = Mesh::create(std::move(world), options.mesh);
  if (!mesh) return mesh.error();
  if (Status s = mesh.value().set_rank_order(options.rank_order); !s) return s.error();
  auto trainer = std::make_unique<TrainerOfMesh>(compute, model, options, std::move(mesh).value());
  if (Status s = trainer->start(layers.value()); !s) return s.error();
  return std::unique_ptr<Trainer>(std::move(trainer));
}

}  // namespace tr::par
