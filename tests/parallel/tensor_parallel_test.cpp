// Tensor parallelism in numbers: the bytes of known configurations, and the usual mistakes, each
// shown to give the wrong answer that it is known for.
#include <gtest/gtest.h>

#include "team.hpp"

namespace {

using namespace partest;
using tr::par::Loss;
using tr::par::Operation;
using tr::par::Split;
using tr::par::Transpose;
using tr::par::Update;

// Four square layers of 1024, no biases, 128 rows of fp32: one matrix between layers is 512 KiB.
enum class Form { kGather, kPairs, kPairsByRows };
Model square_model(Form form, int layers) {
  Model model(Loss::kMeanSquare);
  for (int l = 0; l < layers; ++l) {
    const bool is_row = form != Form::kGather && l % 2 == 1;
    model.linear(1024, 1024, is_row ? Split::kRow : Split::kColumn).gelu().without_bias();
  }
  return model.sequence_parallel(form == Form::kPairsByRows);
}

class NoParameters : public TestStore {
 public:
  NoParameters(Compute& compute, const Model& model, int size)
      : TestStore(compute, Model(model.loss()), {}, DType::kFloat32, 0, size) {
    for (const ParameterSpec& one : model.parameters()) {
      const std::int64_t rows = one.rows / (one.layout == Layout::kRows ? size : 1);
      const std::int64_t cols = one.cols / (one.layout == Layout::kColumns ? size : 1);
      views_.push_back(empty_tensor(compute, rows, cols, DType::kFloat32));
    }
  }
  tr::Status acquire(int) override { return {}; }
  void release(int) override {}
  View parameter(int number) override { return views_[number].view(); }
  tr::Result<View> gradient(int number) override { return views_[number].view(); }

 private:
  std::vector<Tensor> views_;
};

// One step of layers [first, end) by rank `rank` of a team that does not exist.
tr::par::Traffic traffic_of(const Model& model, int first, int ranks, int rank,
                            const StageOptions& options = {}) {
  const auto compute = must(tr::par::make_host_compute("dry"));
  const auto tp = tr::par::make_count_comm(rank, ranks);
  NoParameters store(*compute, model, ranks);
  const auto stage = must(Stage::create(model, first, static_cast<int>(model.layers().size()), *tp,
                                        *compute, store, options));
  const std::int64_t rows = 128 / (stage->boundary() == Layout::kRows ? ranks : 1);
  Spread y = must(stage->forward(
      {.rows = 128}, {empty_tensor(*compute, rows, 1024, DType::kFloat32), stage->boundary()}));
  must(stage->backward(0, std::move(y), true));
  return tp->traffic();
}

TEST(TensorParallel, V14GatherSendsSevenGathers) {
  for (int rank = 0; rank < 4; ++rank) {
    const auto traffic = traffic_of(square_model(Form::kGather, 4), 0, 4, rank);
    EXPECT_EQ(traffic.bytes(), 2'752'512);
    EXPECT_EQ(traffic[Operation::kAllGather].bytes, 4 * 393'216);
    EXPECT_EQ(traffic[Operation::kReduceScatter].bytes, 3 * 393'216);
  }
}

TEST(TensorParallel, V14PairsSendOneAllReduceEachWay) {
  for (int rank = 0; rank < 4; ++rank) {
    // The first layer's dx is nobody's.
    EXPECT_EQ(traffic_of(square_model(Form::kPairs, 4), 0, 4, rank).bytes(), 2'359'296);
    // As a later stage, it is the stage before's.
    const auto later = traffic_of(square_model(Form::kPairs, 6), 2, 4, rank);
    EXPECT_EQ(later.bytes(), 3'145'728);
    EXPECT_EQ(later[Operation::kAllReduce].calls, 4);
    EXPECT_EQ(later[Operation::kAllReduce].bytes, later.bytes());
  }
}

// Five quarters of the pairs' bytes, since what was gathered is gathered again; and the outputs.
TEST(TensorParallel, V14RowsAreGatheredAgainForTheirWeights) {
  for (const int pieces : {1, 4}) {
    const auto traffic =
        traffic_of(square_model(Form::kPairsByRows, 6), 2, 4, 1, {.tp_chunks = pieces});
    EXPECT_EQ(traffic.bytes(), 3'145'728 / 4 * 5 + 393'216);
    EXPECT_EQ(traffic[Operation::kReduceScatter].bytes, 4 * 393'216);
  }
}

TEST(TensorParallel, V14FullRecomputationSendsForwardAgain) {
  StageOptions full{.recompute = tr::par::Recompute::kFull};
  // The outputs need not be gathered again.
  EXPECT_EQ(traffic_of(square_model(Form::kGather, 4), 0, 4, 0, full).bytes(),
            2'752'512 + 3 * 393'216);
  EXPECT_EQ(traffic_of(square_model(Form::kPairs, 4), 0, 4, 0, full).bytes(),
            2'359'296 + 2 * 786'432);
  StageOptions activations{.recompute = tr::par::Recompute::kActivation};
  EXPECT_EQ(traffic_of(square_model(Form::kGather, 4), 0, 4, 0, activations).bytes(), 2'752'512);
}

TEST(TensorParallel, V14RealRanksSendWhatADryRunCounts) {
  Model model(Loss::kMeanSquare);
  model.linear(16, 32, Split::kColumn).gelu().linear(32, 16, Split::kRow);
  for (const bool by_rows : {false, true}) {
    Plan plan{.model = model.sequence_parallel(by_rows), .ranks = 4};
    const std::int64_t gather = 16 * 16 * 4 * 3 / 4;  // of 16 rows and columns of fp32
    // all-reduce; or gather, scatter, gather of the outputs, then dz and x for the gradients.
    EXPECT_EQ(run_team(plan).traffic.bytes(), by_rows ? 5 * gather : 2 * gather);
  }
}

// ---- Mistakes. x is 8 x 16, w 16 x 12, and dz 8 x 12; 4 ranks.

// dy is the same on all ranks. Who "reduce-scatters the full dy" gets it four times.
TEST(TensorParallel, F6ReduceScatterOfAReplicatedGradientIsPTimesTooLarge) {
  const Matrix dy = random_matrix(8, 12, 1);
  on_ranks(4, [&](Comm& tp) {
    const auto compute = must(tr::par::make_host_compute("ref"));
    const auto changed = [&](Layout claimed) {
      const Spread mine = must(relayout(
          tp, *compute, {tensor_of(*compute, dy, DType::kFloat64), claimed}, Layout::kColumns));
      return read(*compute, mine.tensor.view());
    };
    const Matrix right = changed(Layout::kReplicated), wrong = changed(Layout::kPartial);
    expect_equal(right, part_of(dy, Layout::kColumns, tp.rank(), 4));
    for (std::size_t i = 0; i < right.x.size(); ++i) EXPECT_EQ(wrong.x[i], 4 * right.x[i]);
  });
}

// The bias of a row split belongs to the sum. Added by every rank, it is there four times.
TEST(TensorParallel, F6BiasAddedOnEachRankIsAddedPTimes) {
  Model model(Loss::kMeanSquare);
  model.linear(16, 16, Split::kColumn).linear(16, 12, Split::kRow);
  Plan plan{.model = model, .ranks = 4, .rows = 8};
  plan.options.type = DType::kFloat64;
  const Matrix right = run_team(plan).y, bias = initial(model, 11)[3];
  on_ranks(4, [&](Comm& tp) {
    const auto compute = must(tr::par::make_host_compute("ref"));
    TestStore store(*compute, model, initial(model, 11), DType::kFloat64, tp.rank(), 4);
    for (const int layer : {0, 1}) must(store.acquire(layer));
    const Tensor x = tensor_of(*compute, inputs_of(plan), DType::kFloat64);
    const Tensor y = empty_tensor(*compute, 8, 4, DType::kFloat64);
    Tensor z = empty_tensor(*compute, 8, 12, DType::kFloat64);
    must(compute->multiply(Transpose::kNo, Transpose::kNo, x.view(), store.parameter(0), y.view()));
    must(compute->add_row(store.parameter(1), y.view()));
    must(compute->multiply(Transpose::kNo, Transpose::kNo, y.view(), store.parameter(2), z.view()));
    must(compute->add_row(store.parameter(3), z.view()));
    const Matrix wrong =
        read(*compute,
             must(relayout(tp, *compute, {std::move(z), Layout::kPartial}, Layout::kReplicated))
                 .tensor.view());
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 12; ++j) EXPECT_NEAR(wrong(i, j) - right(i, j), 3 * bias(0, j), 1e-14);
    }
  });
}

// In sequence parallelism a replicated parameter has seen only this rank's rows: its gradient on
// any rank is not the gradient, and the sum over ranks is.
TEST(TensorParallel, F6GradientsOfReplicatedParametersArePartialByRows) {
  Model model(Loss::kMeanSquare);
  model.linear(16, 16, Split::kColumn).norm().gelu().linear(16, 12, Split::kRow);
  Plan plan{.model = model, .ranks = 4, .rows = 8};
  plan.options.type = DType::kFloat64;
  const Outcome right = run_team(plan);
  plan.model.sequence_parallel();
  const std::vector<Matrix> parameters = initial(plan.model, 11);
  std::vector<RankOutcome> ranks(4);
  on_ranks(4, [&](Comm& tp) { ranks[tp.rank()] = run_rank(plan, parameters, tp, nullptr); });
  int partial = 0;
  for (const ParameterSpec& one : plan.model.parameters()) {
    if (!one.gradient_is_partial) continue;
    ++partial;
    Matrix sum(one.rows, one.cols);
    for (const RankOutcome& rank : ranks) {
      double distance = 0;
      for (std::size_t i = 0; i < sum.x.size(); ++i) {
        sum.x[i] += rank.gradients[one.number].x[i];
        distance += std::abs(rank.gradients[one.number].x[i] - right.gradients[one.number].x[i]);
      }
      EXPECT_GT(distance, 1e-4) << one.name();
    }
    expect_near(sum, right.gradients[one.number], 1e-14);
  }
  EXPECT_EQ(partial, 3);  // gamma, beta, the second layer's bias
}

}  // namespace
