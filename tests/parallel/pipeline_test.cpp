// The executor, with stages that only look at which numbers go where.
#include "treering/parallel/pipeline.hpp"

#include <gtest/gtest.h>
#include <map>
#include <random>

#include "ranks.hpp"

namespace tr::par {
namespace {

using partest::on_ranks;

constexpr std::int64_t kRows = 3;

// y = 2 x + s, dx = 3 dy + s for stage s, in whole numbers that a float holds exactly. Remembers
// what it was asked.
class FakeStage final : public Stage {
 public:
  FakeStage(Compute& compute, int stage, int stages, std::int64_t width, int fail_at = -1)
      : compute_(compute), stage_(stage), stages_(stages), width_(width), fail_at_(fail_at) {}

  Layout boundary() const override { return Layout::kReplicated; }
  std::int64_t input_width() const override { return width_ + stage_; }  // all stages differ
  std::int64_t output_width() const override { return width_ + stage_ + 1; }
  ActivationBytes activation_bytes(std::int64_t, bool) const override { return {}; }
  int in_flight() const override { return static_cast<int>(inputs_.size()); }

  Result<Spread> forward(const MicroBatch& batch, Spread x) override {
    if (batch.number == fail_at_) return Error{TR_INVALID_ARGUMENT, "no luck"};
    EXPECT_EQ(x.tensor.view().cols, input_width());
    peak_ = std::max(peak_, in_flight() + 1);
    inputs_[batch.number] = first_of(x.tensor.view());
    log_ += "F" + std::to_string(batch.number) + " ";
    return filled(batch.rows, output_width(), 2 * inputs_[batch.number] + stage_);
  }
  Result<Spread> backward(int micro_batch, Spread dy, bool is_last, bool split_weights) override {
    EXPECT_EQ(dy.tensor.view().cols, output_width());
    gradients_[micro_batch] = first_of(dy.tensor.view());
    rows_ = dy.tensor.view().rows;
    log_ += (split_weights ? "I" : "B") + std::to_string(micro_batch) + (is_last ? "! " : " ");
    if (!split_weights) end(micro_batch, is_last);
    if (stage_ == 0) return Spread{};
    return filled(rows_, input_width(), 3 * first_of(dy.tensor.view()) + stage_);
  }
  Status weights(int micro_batch, bool is_last) override {
    log_ += "W" + std::to_string(micro_batch) + (is_last ? "! " : " ");
    end(micro_batch, is_last);
    return {};
  }

  int peak() const { return peak_; }
  const std::string& log() const { return log_; }
  // A sum whose value depends on the order of its terms.
  double weights_gradient() const { return sum_; }
  int last_calls() const { return last_calls_; }

 private:
  void end(int micro_batch, bool is_last) {
    sum_ = sum_ * 1.25 + inputs_[micro_batch] * gradients_[micro_batch];
    last_calls_ += is_last;
    inputs_.erase(micro_batch);
  }
  Result<Spread> filled(std::int64_t rows, std::int64_t cols, double value) {
    Result<Tensor> made =
        Tensor::make(compute_.memory(), Use::kActivations, rows, cols, DType::kFloat32);
    if (!made) return made.error();
    if (Status s = compute_.fill(made.value().view(), value); !s) return s.error();
    return Spread{std::move(made).value(), Layout::kReplicated};
  }
  // All elements are the same, or something was cut or mixed up on the way.
  static double first_of(const View& x) {
    const auto* data = static_cast<const float*>(x.data);
    for (std::int64_t i = 1; i < x.elements(); ++i) EXPECT_EQ(data[i], data[0]);
    return static_cast<double>(data[0]);
  }

  Compute& compute_;
  int stage_, stages_;
  std::int64_t width_;
  int fail_at_;
  std::map<int, double> inputs_, gradients_;
  std::int64_t rows_ = 0;
  std::string log_;
  double sum_ = 0.0;
  int peak_ = 0, last_calls_ = 0;
};

std::vector<MicroBatch> batches_of(int m) {
  std::vector<MicroBatch> batches;
  for (int i = 0; i < m; ++i) {
    const std::int64_t rows = i == m - 1 ? kRows - 1 : kRows;  // the last one is short
    batches.push_back({i, i * kRows, rows, 0});
  }
  return batches;
}

Result<Spread> constant(Compute& compute, std::int64_t rows, std::int64_t cols, double value) {
  Result<Tensor> made =
      Tensor::make(compute.memory(), Use::kActivations, rows, cols, DType::kFloat32);
  if (!made) return made.error();
  if (Status s = compute.fill(made.value().view(), value); !s) return s.error();
  return Spread{std::move(made).value(), Layout::kReplicated};
}

// Inputs are 1 + micro-batch; the loss is the output's first element, its gradient 5 + micro-batch.
PipelineInput input_of(Compute& compute, std::span<const MicroBatch> batches, std::int64_t width) {
  PipelineInput input;
  input.batches = batches;
  input.inputs = [&compute, width](const MicroBatch& batch) {
    return constant(compute, batch.rows, width, 1 + batch.number);
  };
  input.loss = [&compute](const MicroBatch& batch,
                          const Spread& outputs) -> Result<PipelineInput::Loss> {
    const View& y = outputs.tensor.view();
    Result<Spread> gradient = constant(compute, y.rows, y.cols, 5 + batch.number);
    if (!gradient) return gradient.error();
    const double loss = static_cast<double>(*static_cast<const float*>(y.data));
    return PipelineInput::Loss{{loss, 1, batch.rows}, std::move(gradient).value()};
  };
  return input;
}

// What stage s of `stages` must have at the end: with whole numbers, by the definition above.
double expected_weights(int s, int stages, int m) {
  double sum = 0.0;
  for (int i = 0; i < m; ++i) {
    double x = 1 + i, dy = 5 + i;
    for (int k = 0; k < s; ++k) x = 2 * x + k;
    for (int k = stages - 1; k > s; --k) dy = 3 * dy + k;
    sum = sum * 1.25 + x * dy;
  }
  return sum;
}
double expected_loss(int stages, int m) {
  double sum = 0.0;
  for (int i = 0; i < m; ++i) {
    double x = 1 + i;
    for (int k = 0; k < stages; ++k) x = 2 * x + k;
    sum += x;
  }
  return sum;
}

struct Case {
  const char* name;
  int v;
};
constexpr Case kAll[] = {{"naive", 1}, {"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zb-h1", 1}};

// One rank's part. width: of the first boundary, in columns.
void run_rank(std::unique_ptr<Comm> world, const Schedule& schedule, std::int64_t width) {
  const int p = world->size(), m = schedule.micro_batches, stages = schedule.stages();
  auto compute = make_host_compute("ref");
  ASSERT_TRUE(compute);
  Result<Mesh> mesh = Mesh::create(std::move(world), {1, p, 1});
  ASSERT_TRUE(mesh) << mesh.error().message;
  const int rank = mesh.value().rank();
  std::vector<std::unique_ptr<FakeStage>> fakes;
  std::vector<Stage*> mine;
  for (int s = rank; s < stages; s += p) {
    fakes.push_back(std::make_unique<FakeStage>(*compute.value(), s, stages, width));
    mine.push_back(fakes.back().get());
  }
  auto pipeline = Pipeline::create(mesh.value(), *compute.value(), schedule, mine, DType::kFloat32);
  ASSERT_TRUE(pipeline) << pipeline.error().message;
  mesh.value().reset_traffic();
  const std::vector<MicroBatch> batches = batches_of(m);
  const Result<Score> score = pipeline.value()->run(input_of(*compute.value(), batches, width));
  ASSERT_TRUE(score) << score.error().message;

  EXPECT_EQ(score.value().loss_sum, rank == p - 1 ? expected_loss(stages, m) : 0.0);
  std::int64_t bytes_forward = 0, bytes_backward = 0;
  for (const auto& fake : fakes) {
    const int s = rank + p * static_cast<int>(&fake - fakes.data());
    EXPECT_EQ(fake->weights_gradient(), expected_weights(s, stages, m)) << "stage " << s;
    EXPECT_EQ(fake->last_calls(), 1);
    EXPECT_EQ(fake->in_flight(), 0);
    const std::int64_t rows = m * kRows - 1;
    if (p > 1 && s < stages - 1) bytes_forward += rows * fake->output_width() * 4;
    if (p > 1 && s > 0) bytes_backward += rows * fake->input_width() * 4;
  }
  EXPECT_EQ(mesh.value().pp_forward().traffic().bytes(), bytes_forward);
  EXPECT_EQ(mesh.value().pp_backward().traffic().bytes(), bytes_backward);
  EXPECT_EQ(compute.value()->memory().bytes(), 0) << "a message was left behind";
  if (schedule.stages_per_rank == 1) {
    EXPECT_EQ(fakes[0]->peak(), verify(schedule).value().peak_in_flight[rank]);
  }
}

TEST(Pipeline, EveryScheduleGivesEveryStageTheSame) {
  for (const auto& [name, v] : kAll) {
    for (int p = 1; p <= 4; ++p) {
      for (const int m : {1, 2, 3, 4, 8}) {
        const bool fits = v == 1 || m % p == 0;
        if (!fits) continue;
        SCOPED_TRACE(std::string(name) + " p " + std::to_string(p) + " m " + std::to_string(m));
        const Result<Schedule> schedule = make_schedule(name, p, m, v);
        ASSERT_TRUE(schedule) << schedule.error().message;
        on_ranks(p, [&](std::unique_ptr<Comm> world) {
          run_rank(std::move(world), schedule.value(), 2);
        });
      }
    }
  }
}

// Far more than a link holds, so that a send lasts until its receive is there.
TEST(Pipeline, LongMessagesDoNotDeadlock) {
  for (const auto& [name, v] : kAll) {
    for (int p = 2; p <= 4; ++p) {
      SCOPED_TRACE(std::string(name) + " p " + std::to_string(p));
      const Result<Schedule> schedule = make_schedule(name, p, 2 * p, v);
      ASSERT_TRUE(schedule) << schedule.error().message;
      on_ranks(p, [&](std::unique_ptr<Comm> world) {
        run_rank(std::move(world), schedule.value(), 100000);
      });
    }
  }
}

TEST(Pipeline, RunsAScheduleFromAFile) {
  const Result<Schedule> schedule = schedule_from_csv(
      "0,F,0,0\n0,F,0,1\n0,I,0,0\n0,I,0,1\n0,W,0,0\n0,W,0,1\n"
      "1,F,1,0\n1,B,1,0\n1,F,1,1\n1,I,1,1\n1,W,1,1\n");
  ASSERT_TRUE(schedule) << schedule.error().message;
  on_ranks(2,
           [&](std::unique_ptr<Comm> world) { run_rank(std::move(world), schedule.value(), 5); });
}

// What create says on each of two ranks.
std::vector<std::string> refusals(const Schedule (&schedules)[2], int width_of_second = 0) {
  std::vector<std::string> words(2);
  on_ranks(2, [&](std::unique_ptr<Comm> world) {
    auto compute = make_host_compute("ref");
    Result<Mesh> mesh = Mesh::create(std::move(world), {1, 2, 1});
    ASSERT_TRUE(mesh);
    const int rank = mesh.value().rank();
    FakeStage stage(*compute.value(), rank, 2, 4 + rank * width_of_second);
    auto pipeline = Pipeline::create(mesh.value(), *compute.value(), schedules[rank], {&stage},
                                     DType::kFloat32);
    words[rank] = pipeline ? "made" : pipeline.error().message;
  });
  return words;
}

TEST(Pipeline, RefusesWhatCannotRun) {
  const Schedule plain = make_schedule("1f1b", 2, 2).value();
  const Schedule other = make_schedule("gpipe", 2, 2).value();
  const Schedule wide = make_schedule("interleaved", 2, 2, 2).value();
  const Schedule alone = make_schedule("naive", 1, 2).value();
  using Words = std::vector<std::string>;
  EXPECT_EQ(refusals({plain, plain}), (Words{"made", "made"}));
  EXPECT_EQ(refusals({plain, other}),
            (Words{"rank 1 has another pipeline schedule than rank 0; this rank's is 1f1b",
                   "rank 1 has another pipeline schedule than rank 0; this rank's is gpipe"}));
  for (const std::string& words : refusals({wide, wide})) {
    EXPECT_EQ(words, "the schedule has 2 stages a rank, not 1");
  }
  for (const std::string& words : refusals({alone, alone})) {
    EXPECT_EQ(words, "the schedule is for 1 ranks, but the mesh has pp 2");
  }
  for (const std::string& words : refusals({plain, plain}, 3)) {
    EXPECT_EQ(words, "stage 1 takes 8 columns, but stage 0 gives 5");
  }
  Schedule broken = plain;
  std::swap(broken.actions[0][0], broken.actions[0][1]);
  for (const std::string& words : refusals({broken, broken})) {
    EXPECT_EQ(words, "rank 0, action 0 (SA0.0): the stage has not computed it yet");
  }
}

TEST(Pipeline, SaysWhereAStepFailed) {
  on_ranks(1, [](std::unique_ptr<Comm> world) {
    auto compute = make_host_compute("ref");
    Result<Mesh> mesh = Mesh::create(std::move(world), {1, 1, 1});
    ASSERT_TRUE(mesh);
    FakeStage stage(*compute.value(), 0, 1, 4, 1);
    auto pipeline =
        Pipeline::create(mesh.value(), *compute.value(), make_schedule("gpipe", 1, 3).value(),
                         {&stage}, DType::kFloat32);
    ASSERT_TRUE(pipeline) << pipeline.error().message;
    const std::vector<MicroBatch> three = batches_of(3), two = batches_of(2);
    Result<Score> failed = pipeline.value()->run(input_of(*compute.value(), two, 4));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message, "the schedule is for 3 micro-batches, not 2");
    failed = pipeline.value()->run(input_of(*compute.value(), three, 4));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message, "pipeline, F1 of stage 0: no luck");
  });
}

// An observer sees every action once, in the schedule's order but for sends of an exchange, which
// come first.
TEST(Pipeline, TellsOfEveryAction) {
  struct Observer final : ActionObserver {
    std::string seen;
    int open = 0;
    void begin(const Action& action) override {
      EXPECT_EQ(open++, 0);
      seen += to_string(action) + " ";
    }
    void end(const Action&) override { EXPECT_EQ(--open, 0); }
  };
  const char* expected[] = {"F0 SA0 F1 SA1 RG0 B0 RG1 B1 R ", "RA0 F0 B0 SG0 RA1 F1 B1 R SG1 "};
  on_ranks(2, [&](std::unique_ptr<Comm> world) {
    auto compute = make_host_compute("ref");
    Result<Mesh> mesh = Mesh::create(std::move(world), {1, 2, 1});
    ASSERT_TRUE(mesh);
    FakeStage stage(*compute.value(), mesh.value().rank(), 2, 4);
    auto pipeline =
        Pipeline::create(mesh.value(), *compute.value(), make_schedule("1f1b", 2, 2).value(),
                         {&stage}, DType::kFloat32);
    ASSERT_TRUE(pipeline) << pipeline.error().message;
    Observer observer;
    const std::vector<MicroBatch> batches = batches_of(2);
    ASSERT_TRUE(pipeline.value()->run(input_of(*compute.value(), batches, 4), &observer));
    EXPECT_EQ(observer.seen, expected[mesh.value().rank()]);
    EXPECT_EQ(observer.open, 0);
  });
}

}  // namespace
}  // namespace tr::par
