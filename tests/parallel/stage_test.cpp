// Stages: tensor parallelism against one rank's plain loops, bit for bit (gemm "ref", sums in rank
// order), and everything that must not change a bit.
#include "treering/parallel/stage.hpp"

#include <gtest/gtest.h>

#include "oracle.hpp"
#include "team.hpp"

namespace {

using namespace partest;
using tr::par::Loss;
using tr::par::Recompute;
using tr::par::Split;

// gather: every layer by columns. megatron: pairs. Both begin with a layer that nobody shares,
// which another stage has.
Model gather_model() {
  Model model(Loss::kMeanSquare);
  model.linear(16, 24).relu();
  model.linear(24, 32, Split::kColumn).relu().linear(32, 16, Split::kColumn).relu();
  model.linear(16, 8, Split::kColumn);
  return model;
}
Model pair_model(bool by_rows) {
  Model model(Loss::kMeanSquare);
  model.linear(16, 24).relu();
  model.linear(24, 32, Split::kColumn).relu().linear(32, 24, Split::kRow).relu();
  model.linear(24, 16, Split::kColumn).relu().linear(16, 8, Split::kRow);
  return model.sequence_parallel(by_rows);
}
// All that a layer can have, in every combination of neighbours.
Model rich_model(bool by_rows) {
  Model model(Loss::kMeanSquare);
  model.linear(16, 24).gelu().dropout(0.25);
  model.linear(24, 32, Split::kColumn).norm().gelu().linear(32, 16, Split::kRow).dropout(0.5);
  model.linear(16, 16).norm().relu();
  model.linear(16, 24, Split::kColumn).without_bias().gelu().dropout(0.25);
  model.linear(24, 16, Split::kColumn).norm().gelu();
  model.linear(16, 16).gelu();
  model.linear(16, 8, Split::kColumn).linear(8, 8, Split::kRow);
  return model.sequence_parallel(by_rows);
}

void expect_same(const Outcome& actual, const Outcome& expected) {
  expect_equal(actual.y, expected.y);
  expect_equal(actual.dx, expected.dx);
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (std::size_t p = 0; p < actual.gradients.size(); ++p) {
    SCOPED_TRACE("parameter " + std::to_string(p));
    expect_equal(actual.gradients[p], expected.gradients[p]);
  }
}

double largest_of(const Matrix& m) {
  double largest = 0;
  for (const double one : m.x) largest = std::max(largest, std::abs(one));
  return largest;
}
// To `relative` times the largest element.
void expect_close(const Outcome& actual, const Outcome& expected, double relative) {
  expect_near(actual.y, expected.y, relative * largest_of(expected.y));
  expect_near(actual.dx, expected.dx, relative * largest_of(expected.dx));
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (std::size_t p = 0; p < actual.gradients.size(); ++p) {
    SCOPED_TRACE("parameter " + std::to_string(p));
    expect_near(actual.gradients[p], expected.gradients[p],
                relative * largest_of(expected.gradients[p]));
  }
}

class OnTeams : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  Plan plan(const Model& model) const {
    return {.model = model, .ranks = ranks(), .first = 1, .rows = 32, .micro_batches = 2};
  }
};
INSTANTIATE_TEST_SUITE_P(All, OnTeams, testing::Values(1, 2, 4, 8),
                         testing::PrintToStringParamName());

TEST_P(OnTeams, V7GatherEqualsSerial) {
  const Plan gather = plan(gather_model());
  const Outcome team = run_team(gather);
  const Outcome serial = Oracle<float>(gather, 1).run();
  expect_equal(team.y, serial.y);
  // The last layer's gradients: nothing was summed across ranks yet.
  const std::size_t last = serial.gradients.size() - 2;
  expect_equal(team.gradients[last], serial.gradients[last]);
  expect_equal(team.gradients[last + 1], serial.gradients[last + 1]);
  expect_same(team, Oracle<float>(gather, ranks()).run());
  expect_close(team, serial, 2e-6);
}

TEST_P(OnTeams, V8PairsEqualSerialSumsInBlocks) {
  for (const bool by_rows : {false, true}) {
    SCOPED_TRACE(by_rows ? "by rows" : "replicated");
    const Plan pairs = plan(pair_model(by_rows));
    const Outcome team = run_team(pairs);
    expect_same(team, Oracle<float>(pairs, ranks()).run());
    expect_close(team, Oracle<float>(pairs, 1).run(), 2e-6);
    if (!tr::par::have_openblas()) continue;
    Plan fast = pairs;
    fast.gemm = "openblas";
    expect_close(run_team(fast), Oracle<float>(pairs, 1).run(), 2e-6);
  }
}

// V12, and what else is only a question of time and memory.
TEST_P(OnTeams, V12RecomputeOverlapAndPiecesChangeNoBit) {
  for (const bool by_rows : {false, true}) {
    const Plan base = plan(rich_model(by_rows));
    const Outcome expected = run_team(base);
    const auto expect_unchanged = [&](const char* what, const auto& change) {
      SCOPED_TRACE(std::string(what) + (by_rows ? ", by rows" : ""));
      Plan changed = base;
      change(changed);
      expect_same(run_team(changed), expected);
    };
    expect_unchanged("activations", [](Plan& p) { p.options.recompute = Recompute::kActivation; });
    expect_unchanged("full", [](Plan& p) { p.options.recompute = Recompute::kFull; });
    expect_unchanged("no overlap", [](Plan& p) { p.options.overlap = false; });
    expect_unchanged("split weights", [](Plan& p) { p.split_weights = true; });
    for (const int pieces : {2, 3, 100}) {
      expect_unchanged("pieces", [&](Plan& p) { p.options.tp_chunks = pieces; });
    }
    expect_unchanged("all", [](Plan& p) {
      p.options.recompute = Recompute::kFull;
      p.options.tp_chunks = 2;
      p.split_weights = true;
    });
  }
}

TEST_P(OnTeams, V15Fp64EqualsSerialWithAllKindsOfLayers) {
  for (const bool by_rows : {false, true}) {
    for (const char* gemm : {"ref", "openblas"}) {
      if (gemm[0] == 'o' && !tr::par::have_openblas()) continue;
      Plan all = plan(rich_model(by_rows));
      all.options.type = DType::kFloat64;
      all.gemm = gemm;
      expect_close(run_team(all), Oracle<double>(all, 1).run(), 1e-12);
    }
  }
}

TEST_P(OnTeams, HalvesAreCloseToFp32) {
  for (const DType type : {DType::kBFloat16, DType::kFloat16}) {
    Plan half = plan(rich_model(true));
    half.options.type = type;
    // Some sixteen roundings one after another.
    expect_close(run_team(half), Oracle<double>(half, 1).run(), 16 * rounding_of(type));
  }
}

// Pipelines whose last micro-batch found no rows still call it.
TEST_P(OnTeams, AMicroBatchMayBeEmpty) {
  for (const bool by_rows : {false, true}) {
    Plan empty = plan(rich_model(by_rows));
    empty.rows = 0;
    for (const int pieces : {1, 2}) {
      empty.options.tp_chunks = pieces;
      const Outcome team = run_team(empty);
      EXPECT_EQ(team.y.rows, 0);
      for (const Matrix& gradient : team.gradients) EXPECT_EQ(largest_of(gradient), 0.0);
    }
  }
}

TEST_P(OnTeams, V15GradientsAreFiniteDifferences) {
  Plan plan{.model = rich_model(true), .ranks = ranks(), .rows = 8};
  plan.options.type = DType::kFloat64;
  const Outcome team = run_team(plan);
  Oracle<double> oracle(plan, 1);
  std::vector<Matrix>& parameters = oracle.parameters();
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t bits = tr::par::random_bits(1, 2, i);
    const std::size_t p = i % parameters.size();
    const std::size_t at = (bits >> 8) % parameters[p].x.size();
    const double h = 1e-5, old = parameters[p].x[at];
    parameters[p].x[at] = old + h;
    const double above = oracle.loss();
    parameters[p].x[at] = old - h;
    const double below = oracle.loss();
    parameters[p].x[at] = old;
    EXPECT_NEAR(team.gradients[p].x[at], (above - below) / (2 * h), 1e-6)
        << "parameter " << p << ", element " << at;
  }
}

TEST(Stage, LayersBecomeReadyOnceTheLastFirst) {
  for (const bool split : {false, true}) {
    Plan plan{.model = pair_model(false), .first = 1, .micro_batches = 4, .split_weights = split};
    EXPECT_EQ(run_team(plan).ready, (std::vector<int>{4, 3, 2, 1}));
  }
}

TEST(Stage, RecomputeKeepsLess) {
  Plan plan{.model = rich_model(false), .rows = 1024};
  const std::int64_t all = run_team(plan).peak_activations;
  plan.options.recompute = Recompute::kActivation;
  const std::int64_t before = run_team(plan).peak_activations;
  plan.options.recompute = Recompute::kFull;
  plan.micro_batches = 8;
  const std::int64_t input = run_team(plan).peak_activations;
  EXPECT_LT(before, all);
  EXPECT_LT(input, before);
}

TEST(Stage, EvaluationKeepsAndDropsNothing) {
  on_ranks(2, [](Comm& tp) {
    const auto compute = must(tr::par::make_host_compute("ref"));
    const Model model = rich_model(true);
    Plan plan{.model = model, .rows = 8};
    for (const Recompute recompute : {Recompute::kNone, Recompute::kActivation, Recompute::kFull}) {
      TestStore store(*compute, model, initial(model, 11), DType::kFloat32, tp.rank(), 2);
      const auto stage =
          must(Stage::create(model, 0, 8, tp, *compute, store, {.recompute = recompute}));
      const std::int64_t bytes = compute->memory().bytes();
      const auto evaluate = [&](std::int64_t first_row) {
        const Matrix x = part_of(inputs_of(plan), Layout::kRows, tp.rank(), 2);
        MicroBatch batch{.first_row = first_row, .rows = 8, .is_training = false};
        const Spread y =
            must(stage->forward(batch, {tensor_of(*compute, x, DType::kFloat32), Layout::kRows}));
        return read(*compute, y.tensor.view());
      };
      expect_equal(evaluate(0), evaluate(1000));  // dropout would go by the row
      EXPECT_EQ(stage->in_flight(), 0);
      EXPECT_EQ(compute->memory().bytes(), bytes);
    }
  });
}

TEST(Stage, RefusesWhatIsOutOfOrderAndSaysIt) {
  on_ranks(1, [](Comm& tp) {
    const auto compute = must(tr::par::make_host_compute("ref"));
    Model model(Loss::kMeanSquare);
    model.linear(4, 3);
    TestStore store(*compute, model, initial(model, 1), DType::kFloat32, 0, 1);
    EXPECT_EQ(message_of(Stage::create(model, 0, 2, tp, *compute, store, {})),
              "stage: layers 0 to 2 of 1");
    EXPECT_EQ(message_of(Stage::create(model, 0, 1, tp, *compute, store, {.tp_chunks = 0})),
              "stage: tp_chunks is 0: at least 1");
    const auto stage = must(Stage::create(model, 0, 1, tp, *compute, store, {}));
    const auto of = [&](std::int64_t rows, std::int64_t cols) {
      return Spread{tensor_of(*compute, Matrix(rows, cols), DType::kFloat32), Layout::kReplicated};
    };
    EXPECT_EQ(message_of(stage->forward({.rows = 2}, of(2, 3))),
              "stage: an input of 2 x 3 fp32, replicated; it must be 2 x 4 fp32, replicated");
    EXPECT_EQ(message_of(stage->backward(0, of(2, 3), true)),
              "stage: backward of micro-batch 0 without its forward");
    must(stage->forward({.number = 0, .rows = 2}, of(2, 4)));
    must(stage->forward({.number = 1, .rows = 2}, of(2, 4)));
    EXPECT_EQ(message_of(stage->backward(1, of(2, 3), true)),
              "stage: backward of micro-batch 1, but the next is 0: they end in the order in which "
              "they began");
    EXPECT_EQ(message_of(stage->weights(0, true)),
              "stage: weights of micro-batch 0 without its backward");
    must(stage->backward(0, of(2, 3), false, true));
    EXPECT_EQ(message_of(stage->backward(1, of(2, 3), true)),
              "stage: backward of micro-batch 1 before the weights of 0");
  });
  on_ranks(2, [](Comm& tp) {
    const auto compute = must(tr::par::make_host_compute("ref"));
    const Model model = pair_model(true);
    TestStore store(*compute, model, initial(model, 1), DType::kFloat32, tp.rank(), 2);
    const auto stage = must(Stage::create(model, 0, 5, tp, *compute, store, {}));
    EXPECT_EQ(message_of(stage->forward({.rows = 3}, {})),
              "2 tensor-parallel ranks cannot share 3 rows evenly");
  });
}

}  // namespace
