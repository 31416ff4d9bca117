// The executor with real stages: every schedule gives the serial run's gradients, bit for bit;
// bytes are those of the formulas; in computed time, bubbles are those of the formulas.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <mutex>

#include "treering/parallel/pipeline.hpp"
#include "treering/parallel/rng.hpp"
#include "treering/parallel/simulated.hpp"
#include "treering/parallel/trace.hpp"

#include "ranks.hpp"

namespace tr::par {
namespace {

using partest::on_ranks;

// By parameter number. And the loss.
struct Gradients {
  std::mutex mutex;
  std::map<int, std::vector<float>> by_number;
  double loss = 0.0;
};

Model perceptron(const std::vector<std::int64_t>& widths, Loss loss) {
  Model model(loss);
  for (std::size_t i = 1; i < widths.size(); ++i) {
    model.linear(widths[i - 1], widths[i]);
    if (i + 1 < widths.size()) model.relu();
  }
  return model;
}

// All that a rank of a pipeline has.
class Rank {
 public:
  Rank(std::unique_ptr<Comm> world, const MeshShape& shape, Compute& compute, const Model& model,
       const Schedule& schedule, const StoreOptions& options = {})
      : compute_(compute), model_(model) {
    make(std::move(world), shape, schedule, options);
  }

  // One step over `rows` rows of this replica in m micro-batches, the last one short if need be.
  Result<Score> step(std::int64_t rows, ActionObserver* observer = nullptr) {
    const int m = pipeline_->schedule().micro_batches;
    const std::int64_t each = (rows + m - 1) / m, first = mesh_->at().dp * rows;
    std::vector<MicroBatch> batches;
    for (int i = 0; i < m; ++i) {
      MicroBatch batch;
      batch.number = i;
      batch.first_row = first + i * each;
      batch.rows = std::min(each, rows - i * each);
      batches.push_back(batch);
    }
    PipelineInput input;
    input.batches = batches;
    input.inputs = [&](const MicroBatch& batch) { return inputs(batch); };
    input.loss = [&](const MicroBatch&, const Spread& y) { return loss(y, rows); };
    return pipeline_->run(input, observer);
  }

  void gradients_to(Gradients& all) {
    ASSERT_TRUE(store_->finish());
    for (const ParameterSpec& spec : mine_) {
      const Result<View> gradient = store_->gradient(spec.number);
      ASSERT_TRUE(gradient) << gradient.error().message;
      std::vector<float> values(static_cast<std::size_t>(gradient.value().elements()));
      ASSERT_TRUE(compute_.download(gradient.value(), values.data()));
      std::lock_guard lock(all.mutex);
      all.by_number[spec.number] = values;
    }
  }

  Mesh& mesh() { return *mesh_; }
  ParameterStore& store() { return *store_; }

 private:
  void make(std::unique_ptr<Comm> world, const MeshShape& shape, const Schedule& schedule,
            const StoreOptions& options) {
    Result<Mesh> mesh = Mesh::create(std::move(world), shape);
    ASSERT_TRUE(mesh) << mesh.error().message;
    mesh_ = std::make_unique<Mesh>(std::move(mesh).value());
    const std::vector<int> counts =
        even_stages(static_cast<int>(model_.layers().size()), schedule.stages());
    std::vector<std::pair<int, int>> ranges;  // of this rank's stages
    for (int stage = 0, first = 0; stage < schedule.stages(); first += counts[stage++]) {
      if (stage % shape.pp == mesh_->at().pp) ranges.emplace_back(first, first + counts[stage]);
    }
    for (const ParameterSpec& spec : model_.parameters()) {
      for (const auto& [first, end] : ranges) {
        if (spec.layer >= first && spec.layer < end) mine_.push_back(spec);
      }
    }
    auto store = ParameterStore::create(mesh_->dp(), mesh_->tp(), compute_, model_, mine_, options);
    ASSERT_TRUE(store) << store.error().message;
    store_ = std::move(store).value();
    ASSERT_TRUE(store_->initialize(3));
    std::vector<Stage*> stages;
    for (const auto& [first, end] : ranges) {
      auto stage = Stage::create(model_, first, end, mesh_->tp(), compute_, *store_, {});
      ASSERT_TRUE(stage) << stage.error().message;
      stages_.push_back(std::move(stage).value());
      stages.push_back(stages_.back().get());
    }
    auto pipeline = Pipeline::create(*mesh_, compute_, schedule, stages, DType::kFloat32);
    ASSERT_TRUE(pipeline) << pipeline.error().message;
    pipeline_ = std::move(pipeline).value();
    mesh_->reset_traffic();
  }

  Result<Spread> inputs(const MicroBatch& batch) {
    const std::int64_t cols = model_.layers().front().in;
    std::vector<float> values;
    for (std::int64_t i = 0; i < batch.rows * cols; ++i) {
      values.push_back(static_cast<float>(random_symmetric(
          5, kInputStream, static_cast<std::uint64_t>(batch.first_row * cols + i))));
    }
    Result<Tensor> x =
        Tensor::make(compute_.memory(), Use::kActivations, batch.rows, cols, DType::kFloat32);
    if (!x) return x.error();
    if (Status s = compute_.upload(values.data(), x.value().view()); !s) return s.error();
    return Spread{std::move(x).value(), Layout::kReplicated};
  }
  Result<PipelineInput::Loss> loss(const Spread& outputs, std::int64_t rows) {
    const View& y = outputs.tensor.view();
    Result<Tensor> dy = Tensor::make(compute_.memory(), Use::kActivations, y.rows, y.cols, y.type);
    if (!dy) return dy.error();
    const double all = static_cast<double>(rows * mesh_->shape().dp * y.cols);
    Result<Score> score = compute_.mean_square(y, all, 1.0, dy.value().view());
    if (!score) return score.error();
    return PipelineInput::Loss{score.value(), {std::move(dy).value(), outputs.layout}};
  }

  Compute& compute_;
  Model model_;
  std::unique_ptr<Mesh> mesh_;
  std::vector<ParameterSpec> mine_;
  std::unique_ptr<ParameterStore> store_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::unique_ptr<Pipeline> pipeline_;
};

Schedule made(std::string_view name, int p, int m, int v = 1) {
  Result<Schedule> schedule = make_schedule(name, p, m, v);
  if (!schedule) ADD_FAILURE() << schedule.error().message;
  return schedule ? std::move(schedule).value() : Schedule{};
}

void run(const Model& model, const Schedule& schedule, std::int64_t rows, Gradients& all) {
  on_ranks(schedule.ranks, [&](std::unique_ptr<Comm> world) {
    auto compute = make_host_compute("ref");
    ASSERT_TRUE(compute);
    Rank rank(std::move(world), {1, schedule.ranks, 1}, *compute.value(), model, schedule);
    if (testing::Test::HasFatalFailure()) return;
    const Result<Score> score = rank.step(rows);
    ASSERT_TRUE(score) << score.error().message;
    rank.gradients_to(all);
    std::lock_guard lock(all.mutex);
    all.loss += score.value().loss_sum;
  });
}

constexpr std::pair<const char*, int> kAll[] = {
    {"naive", 1}, {"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zb-h1", 1}};

TEST(V6Pipeline, EveryScheduleHasTheSerialRunsBits) {
  // Sixteen layers: two for each stage of eight ranks when they are interleaved.
  const Model model =
      perceptron({6, 9, 7, 8, 5, 9, 6, 7, 4, 8, 5, 6, 9, 7, 5, 8, 4}, Loss::kMeanSquare);
  for (const int m : {1, 4, 12, 16}) {
    const std::int64_t rows = 3 * m - 1;  // the last micro-batch is short
    Gradients serial;
    run(model, made("naive", 1, m), rows, serial);
    ASSERT_EQ(serial.by_number.size(), 32u);
    for (const auto& [number, gradient] : serial.by_number) {
      ASSERT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](float g) { return g != 0; }))
          << number;
    }
    for (const auto& [name, v] : kAll) {
      for (const int p : {2, 3, 4, 8}) {
        if (v > 1 && m % p != 0) continue;
        SCOPED_TRACE(std::string(name) + " p " + std::to_string(p) + " m " + std::to_string(m));
        Gradients parallel;
        run(model, made(name, p, m, v), rows, parallel);
        EXPECT_EQ(parallel.loss, serial.loss);
        EXPECT_EQ(parallel.by_number, serial.by_number);
      }
    }
  }
}

// Two ranks, four micro-batches of 32 rows of 1024 floats.
TEST(PipelineStages, SendAsManyBytesAsTheFormulaSays) {
  Model model(Loss::kMeanSquare);
  for (int i = 0; i < 4; ++i) model.linear(1024, 1024).without_bias();
  for (const char* name : {"gpipe", "1f1b", "zb-h1"}) {
    for (int rank = 0; rank < 2; ++rank) {
      auto dry = make_host_compute("dry");
      ASSERT_TRUE(dry);
      Rank one(make_count_comm(rank, 2), {1, 2, 1}, *dry.value(), model, made(name, 2, 4));
      ASSERT_FALSE(HasFatalFailure());
      const Result<Score> score = one.step(128);
      ASSERT_TRUE(score) << score.error().message;
      EXPECT_EQ(one.mesh().pp_forward().traffic().bytes(), rank == 0 ? 524288 : 0);
      EXPECT_EQ(one.mesh().pp_backward().traffic().bytes(), rank == 0 ? 0 : 524288);
      EXPECT_EQ(one.mesh().traffic().bytes(), 524288);
    }
  }
}

// All ranks' traces of one step in computed time.
std::vector<Trace> traces_of(const Model& model, const MeshShape& shape, const Schedule& schedule,
                             std::int64_t rows, const StoreOptions& options,
                             const SimulatedLinks& links, double flops_per_us) {
  std::vector<Trace> traces;
  on_ranks(shape.size(), [&](std::unique_ptr<Comm> world) {
    auto inner = make_host_compute("ref");
    ASSERT_TRUE(inner);
    SimulatedClock clock;
    Trace trace(world->rank(), clock);
    const auto compute = simulate_compute(*inner.value(), clock, flops_per_us, &trace);
    Rank rank(simulate_links(std::move(world), clock, links, &trace), shape, *compute, model,
              schedule, options);
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_TRUE(rank.mesh().world().barrier());
    trace.clear();
    ActionTrace actions(trace, true);
    const Result<Score> score = rank.step(rows, &actions);
    ASSERT_TRUE(score) << score.error().message;
    ASSERT_TRUE(rank.store().finish());
    Result<std::vector<Trace>> all = gather_traces(rank.mesh().world(), trace);
    ASSERT_TRUE(all) << all.error().message;
    if (rank.mesh().rank() == 0) traces = std::move(all).value();
  });
  return traces;
}

const SimulatedLinks kFast{1e9, 1e9, 8, 0.0};

TEST(PipelineStages, BubblesAreThoseOfTheFormulas) {
  for (const int p : {2, 4, 8}) {
    // The first layer has no dx to compute: the smaller the bubble, the more layers it is to be
    // lost among.
    const Model model = perceptron(
        std::vector<std::int64_t>(static_cast<std::size_t>(256 / p + 1), 8), Loss::kMeanSquare);
    for (const auto& [name, v] : kAll) {
      SCOPED_TRACE(std::string(name) + " p " + std::to_string(p));
      const std::vector<Trace> traces =
          traces_of(model, {1, p, 1}, made(name, p, 8, v), 16, {}, kFast, 1.0);
      const double formula = bubble_formula(name, p, 8, v);
      EXPECT_NEAR(idle_share(traces), formula, 0.1 * formula);
    }
  }
}

// A slow link between stages shows as idle time, in every schedule.
TEST(PipelineStages, SlowLinksMakeLongerBubbles) {
  const Model model = perceptron(std::vector<std::int64_t>(9, 8), Loss::kMeanSquare);
  const Schedule schedule = made("1f1b", 4, 8);
  // A forward pass takes 2 layers * 2 * 2 * 8 * 8 = 512 us; a message of 64 bytes 640 us.
  const SimulatedLinks slow{0.1, 0.1, 8, 0.0};
  const double fast_share = idle_share(traces_of(model, {1, 4, 1}, schedule, 16, {}, kFast, 1.0));
  const double slow_share = idle_share(traces_of(model, {1, 4, 1}, schedule, 16, {}, slow, 1.0));
  EXPECT_GT(slow_share, fast_share + 0.1);
}

// Data parallelism: buckets go beside the rest of the last backward pass, or after it.
TEST(PipelineStages, BucketsStartBeforeTheBackwardPassEnds) {
  const Model model = perceptron(std::vector<std::int64_t>(9, 16), Loss::kMeanSquare);
  StoreOptions options;
  options.bucket_bytes = options.first_bucket_bytes = 2 * (16 * 16 + 16) * 4;  // two layers
  const SimulatedLinks links{10.0, 10.0, 8, 0.0};
  for (const int n : {2, 4, 8}) {
    for (const bool overlap : {true, false}) {
      SCOPED_TRACE((overlap ? "overlap, " : "no overlap, ") + std::to_string(n) + " ranks");
      options.overlap = overlap;
      const std::vector<Trace> traces =
          traces_of(model, {n, 1, 1}, made("gpipe", 1, 2), 16, options, links, 8.0);
      ASSERT_EQ(traces.size(), static_cast<std::size_t>(n));
      for (const Trace& trace : traces) {
        const Interval* backward = trace.find(Row::kCompute, "B1.0");
        const Interval* first = trace.find(Row::kDp, "all_reduce");
        const Interval* third = trace.find(Row::kDp, "all_reduce", 2);
        const Interval* last = trace.find(Row::kDp, "all_reduce", 3);
        ASSERT_TRUE(backward != nullptr && first != nullptr && third != nullptr && last != nullptr);
        EXPECT_EQ(first->begin_us < backward->end_us, overlap);
        EXPECT_EQ(third->begin_us < backward->end_us, overlap);
        EXPECT_GT(last->end_us, backward->end_us);
        const double hidden = overlap_of(trace, {Row::kDp}).share();
        EXPECT_EQ(hidden > 0.5, overlap) << hidden;
      }
    }
  }
}

// ZeRO-3: while a layer is in use the next one's parameters are on their way, forward and backward;
// and the gradients of the layer before.
TEST(PipelineStages, Zero3GathersTheNextLayerBesideThisOne) {
  constexpr int kLayers = 4;
  const Model model = perceptron(std::vector<std::int64_t>(kLayers + 1, 16), Loss::kMeanSquare);
  StoreOptions options{.zero = 3};
  const SimulatedLinks links{10.0, 10.0, 8, 0.0};
  for (const int n : {2, 4, 8}) {
    SCOPED_TRACE(std::to_string(n) + " ranks");
    for (const Trace& trace :
         traces_of(model, {n, 1, 1}, made("gpipe", 1, 1), 16, options, links, 8.0)) {
      // Products: forward of layers 0 to 3, then dx and dW of 3 to 1, dW of 0. Gathers: the same
      // layers, once forward and once backward.
      const auto product = [&](int i) { return trace.find(Row::kCompute, "multiply", i); };
      const auto gathered = [&](int i) { return trace.find(Row::kDp, "all_gather", i); };
      ASSERT_NE(product(kLayers + 2 * kLayers - 2), nullptr);
      ASSERT_NE(gathered(2 * kLayers - 1), nullptr);
      EXPECT_EQ(gathered(2 * kLayers), nullptr);
      for (int l = 0; l < kLayers; ++l) {
        EXPECT_LE(gathered(l)->end_us, product(l)->begin_us) << "forward, layer " << l;
        if (l + 1 < kLayers) {
          EXPECT_LT(gathered(l + 1)->begin_us, product(l)->end_us) << "forward, layer " << l;
        }
      }
      for (int i = 0; i < kLayers; ++i) {  // backward, layer 3 - i
        const Interval* first = product(kLayers + 2 * i);
        EXPECT_LE(gathered(kLayers + i)->end_us, first->begin_us) << "backward " << i;
        if (i + 1 < kLayers) {
          EXPECT_LT(gathered(kLayers + i + 1)->begin_us, first->end_us) << "backward " << i;
          const Interval* reduced = trace.find(Row::kDp, "reduce_scatter", i);
          ASSERT_NE(reduced, nullptr);
          EXPECT_LT(reduced->begin_us, product(kLayers + 2 * i + 2)->end_us) << "backward " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tr::par
