// Planning against worked examples: numbers that were computed by hand or published.
#include "treering/parallel/plan.hpp"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "treering/parallel/schedule.hpp"

namespace tr::par {
namespace {

constexpr double kMiB = 1 << 20;

Plan made(const Workload& workload, const Cluster& cluster, const LayoutChoice& layout) {
  Result<Plan> plan = make_plan(workload, cluster, layout);
  if (!plan) {
    ADD_FAILURE() << plan.error().message;
    return {};
  }
  return plan.value();
}
std::string refusal(const Workload& workload, const Cluster& cluster, const LayoutChoice& layout) {
  const Result<Plan> plan = make_plan(workload, cluster, layout);
  return plan ? "made" : plan.error().message;
}

// Four layers of 1024 x 1024, fp32, batch 128: 16 MiB of parameters.
const Workload kLecture{ModelShape::mlp(4, 1024), 128, Precision::fp32()};
Cluster ranks(int n) {
  Cluster cluster;
  cluster.ranks = n;
  return cluster;
}
LayoutChoice layout_of(int dp, int pp, int tp, std::int64_t micro_batch, int zero = 0) {
  LayoutChoice layout;
  layout.dp = dp;
  layout.pp = pp;
  layout.tp = tp;
  layout.zero = zero;
  layout.micro_batch = micro_batch;
  return layout;
}

TEST(Plan, BytesAParameter) {
  EXPECT_EQ(Precision::mixed().state(), 18);
  EXPECT_DOUBLE_EQ(7e9 * state_bytes(Precision::mixed(), 0, 1), 126e9);
  // 70 B: 1120 to 1400 GB at 16 to 20 bytes.
  EXPECT_DOUBLE_EQ(70e9 * state_bytes(Precision::fp32(), 0, 1), 1120e9);
  EXPECT_DOUBLE_EQ(70e9 * state_bytes(Precision::mixed(), 0, 1), 1260e9);
  EXPECT_DOUBLE_EQ(70e9 * state_bytes({2, 4, 4, 8, 2}, 0, 1) + 70e9 * 2, 1400e9);
  for (const int n : {1, 4, 64}) {
    EXPECT_DOUBLE_EQ(state_bytes(Precision::mixed(), 1, n), 6 + 12.0 / n);
    EXPECT_DOUBLE_EQ(state_bytes(Precision::mixed(), 2, n), 2 + 16.0 / n);
    EXPECT_DOUBLE_EQ(state_bytes(Precision::mixed(), 3, n), 18.0 / n);
  }
}

TEST(Plan, AdamStateOfTheLecturesModel) {
  const auto state = [](const LayoutChoice& layout) {
    const Plan::Memory memory =
        made(kLecture, ranks(layout.dp * layout.pp * layout.tp), layout).memory;
    return (memory.parameters + memory.gradients + memory.optimizer) / kMiB;
  };
  EXPECT_DOUBLE_EQ(state(layout_of(4, 1, 1, 32)), 64);
  EXPECT_DOUBLE_EQ(state(layout_of(4, 1, 1, 32, 1)), 40);
  EXPECT_DOUBLE_EQ(state(layout_of(4, 1, 1, 32, 2)), 28);
  EXPECT_DOUBLE_EQ(state(layout_of(4, 1, 1, 32, 3)), 16);
  EXPECT_DOUBLE_EQ(state(layout_of(1, 1, 4, 128)), 16);
  EXPECT_DOUBLE_EQ(state(layout_of(1, 2, 1, 32)), 32);
}

TEST(Plan, BytesOfTheLecturesModel) {
  const auto sent = [](const LayoutChoice& layout) {
    return made(kLecture, ranks(layout.dp * layout.pp * layout.tp), layout).sent;
  };
  EXPECT_DOUBLE_EQ(sent(layout_of(4, 1, 1, 32)).dp, 25165824);
  EXPECT_DOUBLE_EQ(sent(layout_of(4, 1, 1, 32, 1)).dp, 25165824);
  EXPECT_DOUBLE_EQ(sent(layout_of(4, 1, 1, 32, 2)).dp, 25165824);
  EXPECT_DOUBLE_EQ(sent(layout_of(4, 1, 1, 32, 3)).dp, 37748736);
  LayoutChoice gather = layout_of(1, 1, 4, 128);
  gather.is_megatron = false;
  EXPECT_DOUBLE_EQ(sent(gather).tp, 2752512);
  EXPECT_DOUBLE_EQ(sent(layout_of(1, 1, 4, 128)).tp, 2359296);
  EXPECT_DOUBLE_EQ(sent(layout_of(1, 2, 1, 32)).pp, 524288);
  EXPECT_DOUBLE_EQ(made(kLecture, ranks(1), layout_of(1, 1, 1, 128)).flops, 3221225472.0);
}

// Four micro-batches: gradients are summed first and reduced once; ZeRO-3 gathers for each.
TEST(Plan, BytesOfSeveralMicroBatches) {
  const double part = 0.75 * 16 * kMiB;
  for (const int zero : {0, 1, 2}) {
    EXPECT_DOUBLE_EQ(made(kLecture, ranks(4), layout_of(4, 1, 1, 8, zero)).sent.dp, 2 * part);
  }
  const Plan plan = made(kLecture, ranks(4), layout_of(4, 1, 1, 8, 3));
  EXPECT_DOUBLE_EQ(plan.sent.dp, 4 * 2 * part + part);
  EXPECT_DOUBLE_EQ(plan.memory.gradients, 16 * kMiB);
}

TEST(Plan, MicroBatchesOfABatch) {
  const std::int64_t sequences = 4 * 1024 * 1024 / 4096;
  EXPECT_EQ(sequences, 1024);
  EXPECT_EQ(accumulation(sequences, 2, 128).value(), 4);
  EXPECT_EQ(accumulation(sequences, 2, 512).value(), 1);
  const Result<int> uneven = accumulation(1024, 3, 128);
  ASSERT_FALSE(uneven);
  EXPECT_EQ(uneven.error().message, "a batch of 1024 is no multiple of micro-batch 3 x dp 128");
}

TEST(Plan, UtilizationIsOfDensePeaks) {
  EXPECT_NEAR(mfu(3.57e9, 1.7e6, 256, 989.5e12), 0.144, 0.0005);
  EXPECT_NEAR(mfu(3.57e9, 60e3, 256, 989.5e12), 0.0051, 0.0001);
}

// s b h (34 + 5 a s / h) a layer: 7 B, 32 layers of 4096, 32 heads, 4096 tokens.
TEST(Plan, ActivationsOfATransformer) {
  const ModelShape model = ModelShape::transformer(32, 4096, 32, 4096, 7e9);
  const double layer = 4096.0 * 4096.0;
  EXPECT_DOUBLE_EQ(activation_bytes(model, 1, Precision::mixed()), 32 * layer * (34 + 5 * 32));
  EXPECT_DOUBLE_EQ(activation_bytes(model, 3, Precision::mixed()), 3 * 32 * layer * 194);
  LayoutChoice layout = layout_of(1, 1, 8, 1);
  EXPECT_DOUBLE_EQ(activation_bytes(model, 1, Precision::mixed(), layout),
                   32 * layer * (10 + 24.0 / 8 + 160.0 / 8));
  layout.is_sequence_parallel = true;
  EXPECT_DOUBLE_EQ(activation_bytes(model, 1, Precision::mixed(), layout), 32 * layer * 194 / 8);
  layout.recompute = Recompute::kFull;
  EXPECT_DOUBLE_EQ(activation_bytes(model, 1, Precision::mixed(), layout), 32 * layer * 2 / 8);
  // A perceptron keeps a layer's input and what goes into its activation.
  EXPECT_DOUBLE_EQ(activation_bytes(ModelShape::mlp(4, 1024), 128, Precision::fp32()),
                   2.0 * 128 * 1024 * 4 * 4);
}

TEST(Plan, WhenComputationHidesCommunication) {
  // DP, fp32 gradients, 4 replicas: from 1,622 rows on at 400 TFLOP/s and 370 GB/s, from 24 on a
  // CPU.
  const auto least_rows = [](double flops_per_byte) {
    double rows = 1;
    while (dp_ratio(4, 4, rows, flops_per_byte) > 1.0) ++rows;
    return rows;
  };
  EXPECT_EQ(least_rows(400e12 / 370e9), 1622);
  EXPECT_EQ(least_rows(80e9 / 5e9), 24);
  // (P-1) s F / (2 f BW), s F / (2 n h BW), s (N-1) / (2 N T) F / BW.
  EXPECT_DOUBLE_EQ(tp_ratio(8, 2, 14336, 1000), 7 * 2 * 1000 / (2 * 14336.0));
  EXPECT_DOUBLE_EQ(pp_ratio(2, 4, 4096, 1000), 2 * 1000 / (2 * 4 * 4096.0));
  EXPECT_DOUBLE_EQ(zero3_ratio(4, 2, 500, 1000), 2 * 0.75 * 1000 / (2 * 500.0));
}

TEST(Plan, KeptMicroBatchesAreThoseOfTheProof) {
  for (const char* name : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"}) {
    for (const int m : {1, 4, 8, 16}) {
      LayoutChoice layout = layout_of(1, 4, 1, 1);
      layout.schedule = name;
      layout.stages_per_rank = layout.schedule == "interleaved" ? 3 : 1;
      const Result<Schedule> schedule = make_schedule(name, 4, m, layout.stages_per_rank);
      if (!schedule) continue;
      const std::vector<int> peaks = verify(schedule.value()).value().peak_in_flight;
      EXPECT_DOUBLE_EQ(kept_micro_batches(layout, m) * layout.stages_per_rank, peaks[0])
          << name << " " << m;
    }
  }
}

TEST(Plan, RefusesByName) {
  EXPECT_EQ(refusal(kLecture, ranks(8), layout_of(2, 2, 3, 32)),
            "dp 2 x pp 2 x tp 3 makes 12 ranks, but there are 8");
  EXPECT_EQ(refusal(kLecture, ranks(6), layout_of(2, 1, 3, 32)),
            "tp 3 does not divide a width of 1024");
  EXPECT_EQ(refusal(kLecture, ranks(8), layout_of(1, 8, 1, 32)), "4 layers do not make 8 stages");
  EXPECT_EQ(refusal(kLecture, ranks(4), layout_of(4, 1, 1, 33)),
            "a batch of 128 is no multiple of micro-batch 33 x dp 4");
  EXPECT_EQ(
      refusal({ModelShape::transformer(4, 1024, 6, 128), 8, {}}, ranks(4), layout_of(1, 1, 4, 1)),
      "tp 4 does not divide 6 heads");
  LayoutChoice odd = layout_of(1, 4, 1, 64);
  odd.schedule = "interleaved";
  odd.stages_per_rank = 2;
  EXPECT_EQ(refusal({ModelShape::mlp(8, 64), 128, {}}, ranks(4), odd),
            "interleaved needs a multiple of 4 micro-batches (4), not 2");
}

TEST(Plan, SlowLinksAndFewMicroBatchesCost) {
  const Workload large{ModelShape::transformer(32, 4096, 32, 4096, 7e9), 256, {}};
  const Plan many = made(large, ranks(16), layout_of(2, 8, 1, 1));
  const Plan few = made(large, ranks(16), layout_of(2, 8, 1, 16));
  EXPECT_DOUBLE_EQ(many.bubble, 7.0 / (128 + 7));
  EXPECT_DOUBLE_EQ(few.bubble, 7.0 / (8 + 7));
  EXPECT_GT(many.mfu, few.mfu);
  // Tensor parallelism over a node's end runs at the slow link's speed.
  const Plan inside = made(large, ranks(8), layout_of(1, 1, 8, 1));
  const Plan across = made(large, ranks(16), layout_of(1, 1, 16, 1));
  EXPECT_NEAR(across.tp_s / inside.tp_s, 370.0 / 45 * (15.0 / 16) / (7.0 / 8), 1e-9);
  // No prediction is faster than the products alone.
  EXPECT_LE(many.mfu, ranks(1).efficiency);
}

TEST(Plan, NumbersHaveThreeDigitsAndAUnit) {
  const std::pair<double, const char*> kBytes[] = {
      {0, "0 B"},          {7, "7 B"},          {999, "999 B"},      {1000, "1.00 kB"},
      {9994, "9.99 kB"},   {9996, "10.0 kB"},   {99949, "99.9 kB"},  {99960, "100 kB"},
      {999600, "1.00 MB"}, {126e9, "126 GB"},   {1.4e12, "1.40 TB"}, {0.5, "0.50 B"},
      {12.34, "12.3 B"},   {2.5e18, "2.50 EB"}, {3e21, "3000 EB"}};
  for (const auto& [number, text] : kBytes) EXPECT_EQ(short_number(number, "B"), text);
  EXPECT_EQ(short_number(7e9), "7.00 G");
  EXPECT_EQ(short_number(7), "7");
}

TEST(Plan, WhatIsCountedIsCalledByItsName) {
  const auto said = [](const ModelShape& model) {
    const Result<Plan> plan = make_plan({model, 8, {}}, ranks(8), {.dp = 8});
    return plan ? to_string(plan.value()) : plan.error().message;
  };
  const std::string tokens = said(ModelShape::transformer(4, 256, 4, 128));
  EXPECT_NE(tokens.find("tokens/s, MFU"), std::string::npos) << tokens;
  const std::string samples = said(ModelShape::mlp(4, 256));
  EXPECT_NE(samples.find("samples/s, MFU"), std::string::npos) << samples;
}

TEST(Recommend, SmallModelsAreCopiedLargeOnesSplit) {
  const Workload small{ModelShape::transformer(24, 2048, 16, 2048, 1.3e9), 512, {}};
  const Result<Recommendation> copies = recommend(small, ranks(8));
  ASSERT_TRUE(copies) << copies.error().message;
  EXPECT_EQ(copies.value().plan.layout.dp, 8);
  EXPECT_EQ(copies.value().plan.layout.tp, 1);
  EXPECT_EQ(copies.value().plan.layout.pp, 1);

  const Workload large{ModelShape::transformer(80, 8192, 64, 4096, 70e9), 1024, {}};
  const Result<Recommendation> split = recommend(large, ranks(256));
  ASSERT_TRUE(split) << split.error().message;
  const Plan& plan = split.value().plan;
  EXPECT_TRUE(plan.fits);
  EXPECT_LE(plan.memory.total(), 80e9);
  EXPECT_LE(plan.layout.tp, 8);
  EXPECT_GT(plan.layout.tp * plan.layout.pp + plan.layout.zero, 1);
  ASSERT_FALSE(split.value().reasons.empty());
  EXPECT_NE(split.value().reasons[0].find("something has to be split"), std::string::npos);
  // Nothing of what was tried by hand is faster.
  for (const LayoutChoice& other : {layout_of(4, 8, 8, 1, 1), layout_of(8, 4, 8, 1, 1),
                                    layout_of(32, 1, 8, 1, 3), layout_of(2, 16, 8, 1, 0)}) {
    const Plan tried = made(large, ranks(256), other);
    EXPECT_TRUE(!tried.fits || plan.step_s() <= tried.step_s() * 1.05) << to_string(tried);
  }
}

TEST(Recommend, SaysWhatIsMissing) {
  const Workload large{ModelShape::transformer(80, 8192, 64, 4096, 70e9), 8, {}};
  const Result<Recommendation> none = recommend(large, ranks(8));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message.rfind("nothing fits: the smallest layout, ", 0), 0u)
      << none.error().message;
  const Result<Recommendation> odd = recommend({ModelShape::mlp(4, 64), 0, {}}, ranks(8));
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().message,
            "layers, widths, heads, sequence, parameters and batch are at least 1");
}

}  // namespace
}  // namespace tr::par
