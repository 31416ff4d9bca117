// ZeRO: the same bits as data parallelism (V9), bytes to the byte (V14), memory as predicted, and
// what lectures get wrong about both.
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "treering/parallel/parameters.hpp"

#include "ranks.hpp"
#include "synthetic_steps.hpp"

namespace {

using namespace partest;
using namespace tr::par;

constexpr std::int64_t kMiB = 1 << 20;

struct Seen {
  std::vector<std::uint64_t> hashes;
  std::vector<double> norms;
  Traffic traffic;
};

struct Plan {
  StoreOptions store = {};
  int ranks = 3;
  int steps = 20;
  int micro_batches = 1;
};

// Layers of 76,500 bytes and less; 23,957 elements in all, which 3 does not divide.
Model odd_model() {
  Model model(Loss::kMeanSquare);
  model.linear(150, 127).linear(127, 33).without_bias().linear(33, 19).norm();
  return model;
}

std::vector<Seen> train(const Plan& plan) {
  std::vector<Seen> seen(static_cast<std::size_t>(plan.ranks));
  on_ranks(plan.ranks, [&](std::unique_ptr<Comm> dp) {
    const auto compute = must(make_host_compute("ref"));
    const auto alone = make_count_comm(0, 1);
    must(dp->set_rank_order(true));
    const Model model = odd_model();
    const std::vector<ParameterSpec> parameters = model.parameters();
    const auto store =
        must(ParameterStore::create(*dp, *alone, *compute, model, parameters, plan.store));
    must(store->initialize(11));
    Seen& mine = seen[static_cast<std::size_t>(dp->rank())];
    for (int s = 0; s < plan.steps; ++s) {
      synthetic_passes(*store, parameters, plan.micro_batches,
                       [&](int m, const ParameterSpec& p, const View& gradient) {
                         add_random(*compute, ((s * 10 + m) * 10 + dp->rank()) * 10 + p.number,
                                    gradient);
                       });
      must(store->finish());
      mine.norms.push_back(must(store->gradient_norm(*alone)));
      must(store->step(s % 2 == 0 ? 1.0 : 1.0 / mine.norms.back()));
      if (s == 0) mine.traffic = dp->traffic();
      mine.hashes.push_back(must(store->hash()));
    }
  });
  return seen;
}

class V9Zero : public testing::TestWithParam<DType> {};

TEST_P(V9Zero, EqualsDataParallelismBitForBit) {
  for (const int n : {2, 3, 4, 8}) {
    for (const int micro_batches : {1, 3}) {
      if (n == 3 && micro_batches == 1) continue;
      Plan plan{.ranks = n, .micro_batches = micro_batches};
      plan.store.type = GetParam();
      plan.store.first_bucket_bytes = 1 << 13;
      // The last bits of the norm, and so of clipped gradients, depend on the buckets: a layer each
      // with zero 3.
      for (const bool by_layer : {false, true}) {
        plan.store.zero = 0;
        plan.store.bucket_bytes = by_layer ? 1 : kMiB;
        if (by_layer) plan.store.first_bucket_bytes = 1;
        const std::vector<Seen> expected = train(plan);
        EXPECT_NE(expected[0].hashes.front(), expected[0].hashes.back());
        for (plan.store.zero = by_layer ? 3 : 1; plan.store.zero <= (by_layer ? 3 : 2);
             ++plan.store.zero) {
          for (const Seen& one : train(plan)) {
            EXPECT_EQ(one.hashes, expected[0].hashes)
                << "zero " << plan.store.zero << ", " << n << " ranks";
            EXPECT_EQ(one.norms, expected[0].norms)
                << "zero " << plan.store.zero << ", " << n << " ranks";
          }
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Types, V9Zero,
                         testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat64),
                         [](const auto& one) { return std::string(name_of(one.param)); });

TEST(V9ZeroSgd, EqualsDataParallelismBitForBit) {
  for (const int n : {2, 3, 4, 8}) {
    Plan plan{.ranks = n, .steps = 5};
    plan.store.first_bucket_bytes = plan.store.bucket_bytes = 1;
    plan.store.optimizer = {.is_adamw = false, .sgd_lr = 0.01, .sgd_momentum = 0.9};
    const std::vector<Seen> expected = train(plan);
    for (plan.store.zero = 1; plan.store.zero <= 3; ++plan.store.zero) {
      for (const Seen& one : train(plan)) {
        EXPECT_EQ(one.hashes, expected[0].hashes) << "zero " << plan.store.zero << ", " << n;
      }
    }
  }
}

// The lecture's network: 4 layers of 1024 x 1024, no bias, 16 MiB of fp32.
Model cs336() {
  Model model(Loss::kMeanSquare);
  for (int l = 0; l < 4; ++l) model.linear(1024, 1024).without_bias().gelu();
  return model;
}

// A step of rank 0 of n that need not exist.
struct Dry {
  Traffic traffic;
  std::int64_t peak_bytes = 0, static_bytes = 0;
  StoreMemory predicted_memory;
  Traffic predicted_traffic;
};
Dry dry_step(const Model& model, int n, const StoreOptions& options, bool keeps_last_layer = false,
             int micro_batches = 1) {
  const auto compute = must(make_host_compute("dry"));
  const auto dp = make_count_comm(0, n), alone = make_count_comm(0, 1);
  const std::vector<ParameterSpec> parameters = model.parameters();
  const auto store =
      must(ParameterStore::create(*dp, *alone, *compute, model, parameters, options));
  must(store->initialize(1));
  Dry dry;
  dry.static_bytes = compute->memory().bytes();
  compute->memory().reset_peak();
  dp->reset_traffic();
  if (keeps_last_layer) must(store->acquire(parameters.back().layer));
  synthetic_passes(*store, parameters, micro_batches,
                   [](int, const ParameterSpec&, const View&) {});
  if (keeps_last_layer) store->release(parameters.back().layer);
  must(store->finish());
  (void)must(store->gradient_norm(*alone));
  must(store->step(1.0));
  dry.traffic = dp->traffic();
  dry.peak_bytes = compute->memory().peak_bytes();
  dry.predicted_memory = must(predict_memory(parameters, n, 1, options, micro_batches > 1));
  dry.predicted_traffic = must(predict_traffic(parameters, 0, n, 1, options));
  return dry;
}

TEST(V14WorkedNumbers, DataParallelismOfFour) {
  for (const std::int64_t cap : {std::int64_t{1}, 5 * kMiB, 9 * kMiB, 100 * kMiB}) {
    StoreOptions options;
    options.first_bucket_bytes = options.bucket_bytes = cap;
    const Dry dry = dry_step(cs336(), 4, options);
    EXPECT_EQ(dry.traffic.bytes(), 25'165'824) << cap;
    EXPECT_EQ(dry.traffic[Operation::kAllReduce].bytes, 25'165'824) << cap;
    EXPECT_EQ(dry.predicted_traffic.bytes(), 25'165'824) << cap;
    // Six sends a bucket; a bucket a layer makes them 1 MiB each.
    EXPECT_EQ(dry.traffic[Operation::kAllReduce].messages,
              6 * dry.traffic[Operation::kAllReduce].calls);
    if (cap > 1) continue;
    EXPECT_EQ(dry.traffic[Operation::kAllReduce].messages, 24);
  }
}

TEST(V14WorkedNumbers, ZeroOfFour) {
  for (const int zero : {1, 2}) {
    const Dry dry = dry_step(cs336(), 4, {.zero = zero});
    EXPECT_EQ(dry.traffic[Operation::kReduceScatter].bytes, 12'582'912);
    EXPECT_EQ(dry.traffic[Operation::kAllGather].bytes, 12'582'912);
    EXPECT_EQ(dry.traffic.bytes(), 25'165'824);  // what plain data parallelism sends
    const Dry half = dry_step(cs336(), 4, {.zero = zero, .type = DType::kBFloat16});
    EXPECT_EQ(half.traffic[Operation::kReduceScatter].bytes, 12'582'912);
    EXPECT_EQ(half.traffic[Operation::kAllGather].bytes, 12'582'912 / 2);
  }
  const Dry dry = dry_step(cs336(), 4, {.zero = 3});
  EXPECT_EQ(dry.traffic.bytes(), 37'748'736);
  EXPECT_EQ(dry.traffic[Operation::kAllGather].calls, 8);
  EXPECT_EQ(dry.predicted_traffic.bytes(), 37'748'736);
  EXPECT_EQ(dry_step(cs336(), 4, {.zero = 3}, true).traffic.bytes(), 34'603'008);
}

// Accumulation sends once, with every stage but 3, which gathers for each micro-batch.
TEST(V14WorkedNumbers, AccumulationDoesNotSendMore) {
  for (const int zero : {0, 1, 2}) {
    EXPECT_EQ(dry_step(cs336(), 4, {.zero = zero}, false, 4).traffic.bytes(), 25'165'824) << zero;
  }
}

TEST(V14WorkedNumbers, RealRanksCountWhatIsPredicted) {
  for (const int n : {2, 3, 4, 8}) {
    for (const int zero : {0, 1, 2, 3}) {
      Plan plan{.ranks = n, .steps = 1};
      plan.store.zero = zero;
      plan.store.first_bucket_bytes = 1 << 13;
      const std::vector<Seen> seen = train(plan);
      for (int r = 0; r < n; ++r) {
        const Traffic expected =
            must(predict_traffic(odd_model().parameters(), r, n, 1, plan.store));
        for (const Operation op :
             {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather}) {
          EXPECT_EQ(seen[r].traffic[op].bytes, expected[op].bytes) << zero << " " << name_of(op);
          EXPECT_EQ(seen[r].traffic[op].calls, expected[op].calls) << zero << " " << name_of(op);
          EXPECT_EQ(seen[r].traffic[op].messages, expected[op].messages)
              << zero << " " << name_of(op);
        }
      }
    }
  }
}

// 25 MiB, the first one smaller; the last layer is the first to be reduced.
TEST(Buckets, AreWholeLayersTheLastFirst) {
  Model model(Loss::kMeanSquare);
  for (int l = 0; l < 16; ++l) model.linear(1024, 1024).without_bias();  // 4 MiB each
  const auto compute = must(make_host_compute("dry"));
  const auto alone = make_count_comm(0, 1);
  for (const int n : {2, 4, 8}) {
    const auto dp = make_count_comm(0, n);
    const auto store = must(
        ParameterStore::create(*dp, *alone, *compute, model, model.parameters(), StoreOptions{}));
    std::vector<std::vector<int>> layers;
    for (const BucketInfo& one : store->buckets()) layers.push_back(one.layers);
    EXPECT_EQ(layers, (std::vector<std::vector<int>>{
                          {15}, {14, 13, 12, 11, 10, 9}, {8, 7, 6, 5, 4, 3}, {2, 1, 0}}));
  }
}

TEST(Memory, OfTheLecturesNetworkOnFourRanks) {
  const std::int64_t mib[] = {64, 40, 28, 16};
  for (const int zero : {0, 1, 2, 3}) {
    EXPECT_EQ(dry_step(cs336(), 4, {.zero = zero}).static_bytes, mib[zero] * kMiB);
  }
}

// The peak of a step is the prediction, within 5 % and 4 KiB.
TEST(Memory, PeaksAsPredicted) {
  constexpr double kConstant = 4096;
  for (const Model& model : {cs336(), odd_model()}) {
    for (const int n : {1, 4, 7}) {
      for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
        for (const int micro_batches : {1, 2}) {
          for (const int zero : {0, 1, 2, 3}) {
            StoreOptions options{.zero = zero, .type = type};
            options.bucket_bytes = 5 * kMiB;
            const Dry dry = dry_step(model, n, options, false, micro_batches);
            const auto expected = static_cast<double>(dry.predicted_memory.peak());
            EXPECT_NEAR(static_cast<double>(dry.peak_bytes), expected, 0.05 * expected + kConstant)
                << "zero " << zero << ", " << n << " ranks, " << name_of(type) << ", "
                << micro_batches;
            EXPECT_EQ(dry.static_bytes,
                      dry.predicted_memory.peak() - dry.predicted_memory.transient);
          }
        }
      }
    }
  }
}

// Why layers are normalized over their columns: a replica has all columns of its rows, but not all
// rows. A batch norm's means and variances are those of the replica's rows.
TEST(Lectures, BatchNormOfAShareIsNotThatOfTheBatch) {
  constexpr std::int64_t kRows = 16, kCols = 6;
  const Matrix x = random_matrix(kRows, kCols, 77);
  // Of each column over rows, or of each row over columns.
  const auto normalized = [](const Matrix& m, bool by_batch) {
    Matrix out(m.rows, m.cols);
    const std::int64_t groups = by_batch ? m.cols : m.rows, each = by_batch ? m.rows : m.cols;
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto at = [&](std::int64_t i) { return by_batch ? m(i, g) : m(g, i); };
      double mean = 0.0, variance = 0.0;
      for (std::int64_t i = 0; i < each; ++i) mean += at(i) / static_cast<double>(each);
      for (std::int64_t i = 0; i < each; ++i) {
        variance += (at(i) - mean) * (at(i) - mean) / static_cast<double>(each);
      }
      for (std::int64_t i = 0; i < each; ++i) {
        (by_batch ? out(i, g) : out(g, i)) = (at(i) - mean) / std::sqrt(variance + 1e-5);
      }
    }
    return out;
  };
  const auto compute = must(make_host_compute("ref"));
  const Matrix layer = normalized(x, false), batch = normalized(x, true);
  for (const int n : {2, 4, 8}) {
    const std::int64_t rows = kRows / n;
    double drift = 0.0;
    for (int rank = 0; rank < n; ++rank) {
      const Matrix mine = x.part(rank * rows, 0, rows, kCols);
      const Matrix ours = normalized(mine, true);
      // The library's norm, on this replica's rows alone.
      const auto make = [&](std::int64_t r, std::int64_t c, double value) {
        Tensor t = must(Tensor::make(compute->memory(), Use::kBuffers, r, c, DType::kFloat64));
        must(compute->fill(t.view(), value));
        return t;
      };
      const Tensor in = tensor_of(*compute, mine, DType::kFloat64);
      const Tensor one = make(1, kCols, 1.0), zero = make(1, kCols, 0.0),
                   out = make(rows, kCols, 0.0);
      const Tensor stats = make(rows, 2, 0.0);
      must(compute->layer_norm(in.view(), one.view(), zero.view(), out.view(), stats.view()));
      expect_near(read(*compute, out.view()), layer.part(rank * rows, 0, rows, kCols), 1e-12);
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < kCols; ++j) {
          drift = std::max(drift, std::abs(ours(i, j) - batch(rank * rows + i, j)));
        }
      }
    }
    EXPECT_GT(drift, 0.1) << n << " replicas";
  }
}

// "The parameters are far larger than the gradients": they are as many. "ZeRO-1 takes a quarter of
// the memory": of n ranks, each has an nth of the optimizer's state, and all of the rest.
TEST(Lectures, SizesOfParametersGradientsAndOptimizer) {
  const std::vector<ParameterSpec> parameters = cs336().parameters();
  const StoreMemory one = must(predict_memory(parameters, 1, 1, {}));
  EXPECT_EQ(one.parameters, one.gradients);
  StoreOptions mixed{.zero = 1, .type = DType::kBFloat16};
  const StoreMemory alone = must(predict_memory(parameters, 1, 1, mixed));
  EXPECT_EQ(alone.peak(), 18 * 4'194'304);  // 2 + 4 + 4 + 4 + 4 bytes a parameter
  for (const int n : {2, 8, 64, 1024}) {
    const StoreMemory sharded = must(predict_memory(parameters, n, 1, mixed));
    EXPECT_EQ(sharded.optimizer * n, alone.optimizer);
    EXPECT_LT(static_cast<double>(alone.peak()) / static_cast<double>(sharded.peak()), 3.0);
  }
}

// "The volume of data parallelism does not depend on the model but on the number of devices": it is
// the reverse.
TEST(Lectures, VolumeGrowsWithTheModelNotTheDevices) {
  const auto sent = [](std::int64_t elements, int n) {
    return static_cast<double>(
        ring_traffic(Operation::kAllReduce, elements, DType::kFloat32, 0, n).bytes);
  };
  EXPECT_EQ(sent(2 << 20, 8), 2 * sent(1 << 20, 8));
  EXPECT_EQ(sent(1 << 20, 512) / sent(1 << 20, 8),
            (511.0 / 512) / (7.0 / 8));  // 1.14 times, for 64 times as many
}

// "Reduce-scatter is four times slower than all-reduce": its input is n times as long as what comes
// out. In bytes sent, 400 MiB a rank of output on 4 ranks are twice an all-reduce of 400 MiB.
TEST(Lectures, AReduceScattersBytesAreThoseOfItsInput) {
  const std::int64_t out = 100 * kMiB;  // fp32 elements
  const auto all_reduce = ring_traffic(Operation::kAllReduce, out, DType::kFloat32, 0, 4).bytes;
  const auto reduce_scatter =
      ring_traffic(Operation::kReduceScatter, 4 * out, DType::kFloat32, 0, 4).bytes;
  EXPECT_EQ(all_reduce, 600 * kMiB);
  EXPECT_EQ(reduce_scatter, 1200 * kMiB);
}

}  // namespace
