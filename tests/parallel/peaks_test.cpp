// Peak memory of a step on every rank of 2, 4 and 8, in every ZeRO stage and layout, against the
// prediction: parameters, gradients and optimizer as predict_memory has them, and activations
// for as many micro-batches as the schedule's proof says are in flight. Within 5 % and what is in
// work, a number of activations of one micro-batch that is stated below.
#include <algorithm>

#include "treering/parallel/plan.hpp"
#include "treering/parallel/schedule.hpp"

#include "trainers.hpp"

namespace partest {
namespace {

using tr::par::LayoutChoice;
using tr::par::ModelShape;
using tr::par::Precision;
using tr::par::Recompute;

enum class Form { kGather, kPairs, kPairsByRows };

struct Case {
  MeshShape mesh;
  int zero = 0;
  int micro_batches = 1;
  Form form = Form::kPairs;
  const char* schedule = "1f1b";
  int stages_per_rank = 1;
  Recompute recompute = Recompute::kNone;
  DType type = DType::kFloat32;
  int layers = 8;
  std::int64_t width = 256, rows = 512;

  std::int64_t micro_batch() const { return rows / mesh.dp / micro_batches; }
  std::int64_t element_bytes() const { return static_cast<std::int64_t>(tr::par::size_of(type)); }
  double message_bytes() const {  // an activation of a micro-batch, whole
    return static_cast<double>(micro_batch() * width * element_bytes());
  }
  // What is in work, beside what is kept for the backward pass: an output and its gradient; one
  // more where outputs are gathered; what is computed again; in a pipeline the messages of three
  // exchanges (pipeline.hpp) and the sum that is to be sent. By rows inputs and messages are parts.
  double working_bytes() const {
    const double part = form == Form::kPairsByRows ? 1.0 / mesh.tp : 1.0;
    const double again = recompute == Recompute::kNone ? 0 : 3 * part;
    return message_bytes() * (2 + (form == Form::kGather) + again + (mesh.pp > 1 ? 4 * part : 0));
  }
};

std::string text_of(const Case& c) {
  return name_of(c.mesh) + " zero " + std::to_string(c.zero) + " m " +
         std::to_string(c.micro_batches) + " form " + std::to_string(static_cast<int>(c.form)) +
         " " + c.schedule + " recompute " + std::to_string(static_cast<int>(c.recompute)) + " " +
         tr::par::name_of(c.type);
}

Training training_of(const Case& c) {
  Training t;
  t.model = Model(tr::par::Loss::kMeanSquare);
  for (int l = 0; l < c.layers; ++l) {
    const bool is_row = c.form != Form::kGather && l % 2 == 1;
    t.model.linear(c.width, c.width, is_row ? Split::kRow : Split::kColumn).gelu();
    t.model.without_bias();
  }
  t.model.sequence_parallel(c.form == Form::kPairsByRows);
  t.options.mesh = c.mesh;
  t.options.zero = c.zero;
  t.options.micro_batches = c.micro_batches;
  t.options.schedule = c.schedule;
  t.options.stages_per_rank = c.stages_per_rank;
  t.options.recompute = c.recompute;
  t.options.type = c.type;
  t.batch = t.rows = c.rows;
  t.features = c.width;
  return t;
}

struct Peak {
  double measured = 0.0, predicted = 0.0;
  // With ZeRO-2 and 3 and one micro-batch whole gradients come while activations go: their peaks
  // add up to an upper bound.
  double apart = 0.0;
};

void predict(const Case& c, Trainer& trainer, Peak& peak) {
  const auto store = tr::par::predict_memory(trainer.own_parameters(), c.mesh.dp, c.mesh.tp,
                                             trainer.store_options(), c.micro_batches > 1);
  ASSERT_TRUE(store);
  const auto proof = tr::par::verify(trainer.schedule());
  ASSERT_TRUE(proof);
  const int in_flight =
      proof.value().peak_in_flight[static_cast<std::size_t>(trainer.mesh().at().pp)];
  LayoutChoice layout;
  layout.pp = c.mesh.pp;
  layout.tp = c.mesh.tp;
  layout.stages_per_rank = c.stages_per_rank;
  layout.is_megatron = c.form != Form::kGather;
  layout.is_sequence_parallel = c.form == Form::kPairsByRows;
  layout.recompute = c.recompute;
  const Precision precision = c.type == DType::kFloat32 ? Precision::fp32() : Precision::mixed();
  // With GPipe the last stage has all outputs' gradients before the first backward pass.
  const bool has_outputs = std::string(c.schedule) == "gpipe" && c.mesh.pp > 1 &&
                           trainer.mesh().at().pp + 1 == c.mesh.pp;
  const double activations =
      (has_outputs ? c.message_bytes() * (in_flight - 1) : 0.0) +
      tr::par::peak_activation_bytes(ModelShape::mlp(c.layers, c.width), c.micro_batch(), precision,
                                     layout, in_flight);
  const auto transient = static_cast<double>(store.value().transient);
  const double steady = static_cast<double>(store.value().peak()) - transient;
  peak.predicted = steady + transient + activations;
  peak.apart = c.zero >= 2 && c.micro_batches == 1 ? steady + std::max(transient, activations)
                                                   : peak.predicted;
}

Peak peak_of(const Case& c, const Training& t, Trainer& trainer, Compute& compute) {
  train_steps(t, trainer, 0, 1, nullptr);
  compute.memory().reset_peak();
  train_steps(t, trainer, 0, 1, nullptr);
  Peak peak{.measured = static_cast<double>(compute.memory().peak_bytes())};
  predict(c, trainer, peak);
  return peak;
}

Peak dry(const Case& c, int rank) {
  const Training t = training_of(c);
  auto compute = tr::par::make_host_compute("dry");
  auto trainer = Trainer::create(tr::par::make_count_comm(rank, c.mesh.size()), *compute.value(),
                                 t.model, t.options);
  if (!trainer) {
    ADD_FAILURE() << text_of(c) << ": " << trainer.error().message;
    return {};
  }
  return peak_of(c, t, *trainer.value(), *compute.value());
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int n : {2, 4, 8}) {
    for (int zero = 0; zero <= 3; ++zero) {
      for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
        for (const int m : {1, 4}) {
          cases.push_back({.mesh = {n, 1, 1}, .zero = zero, .micro_batches = m, .type = type});
        }
      }
    }
    for (const Form form : {Form::kGather, Form::kPairs, Form::kPairsByRows}) {
      for (const int m : {1, 4}) {
        for (const Recompute recompute :
             {Recompute::kNone, Recompute::kActivation, Recompute::kFull}) {
          cases.push_back(
              {.mesh = {1, 1, n}, .micro_batches = m, .form = form, .recompute = recompute});
        }
      }
    }
    for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1"}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        // A zero-bubble schedule keeps what was computed again until its weights' turn.
        if (recompute == Recompute::kFull && std::string(schedule) == "zb-h1") continue;
        cases.push_back(
            {.mesh = {1, n, 1}, .micro_batches = 8, .schedule = schedule, .recompute = recompute});
      }
    }
    cases.push_back({.mesh = {1, n, 1},
                     .micro_batches = 8,
                     .schedule = "interleaved",
                     .stages_per_rank = 2,
                     .layers = 16});
  }
  for (const MeshShape& mesh : {MeshShape{2, 2, 2}, MeshShape{2, 2, 1}, MeshShape{2, 1, 2},
                                MeshShape{1, 2, 2}, MeshShape{4, 1, 2}, MeshShape{1, 2, 4}}) {
    for (int zero = 0; zero <= (mesh.dp > 1 ? 3 : 0); ++zero) {
      for (const Form form : {Form::kGather, Form::kPairs, Form::kPairsByRows}) {
        cases.push_back({.mesh = mesh, .zero = zero, .micro_batches = 4, .form = form});
      }
    }
  }
  return cases;
}

TEST(Peaks, AreThePredictionsInEveryStageAndLayout) {
  for (const Case& c : all_cases()) {
    for (int rank = 0; rank < c.mesh.size(); ++rank) {
      const Peak peak = dry(c, rank);
      const std::string what = text_of(c) + ", rank " + std::to_string(rank);
      EXPECT_LE(peak.measured, 1.05 * peak.predicted + c.working_bytes()) << what;
      EXPECT_GE(peak.measured, 0.95 * peak.apart) << what;
    }
  }
}

// What a dry run counts is what real ranks allocate.
TEST(Peaks, OfRealRanksAreThoseOfADryRun) {
  for (Case c : all_cases()) {
    c.width = 64;
    c.rows = 128;
    const Training t = training_of(c);
    on_ranks(c.mesh.size(), [&](std::unique_ptr<tr::par::Comm> world) {
      const int rank = world->rank();
      auto compute = tr::par::make_host_compute("ref");
      auto trainer = Trainer::create(std::move(world), *compute.value(), t.model, t.options);
      ASSERT_TRUE(trainer) << trainer.error().message;
      const Peak real = peak_of(c, t, *trainer.value(), *compute.value());
      EXPECT_EQ(real.measured, dry(c, rank).measured) << text_of(c) << ", rank " << rank;
    });
  }
}

}  // namespace
}  // namespace partest
